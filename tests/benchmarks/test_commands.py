"""Every command answers, and every command in the guides can be parsed."""

import importlib
import pathlib
import re
import shlex

import pytest

from benchmarks.__main__ import COMMANDS, main, parser

ROOT = pathlib.Path(__file__).parents[2]
GUIDES = "\n".join(file.read_text() for file in sorted((ROOT / "docs").glob("*.md")))
COMMAND = r"python -m benchmarks (\w+[^\n`#|]*)"
LINES = [shlex.split(line) for line in re.findall(COMMAND, GUIDES.replace("\\\n", " "))]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_the_options(command, capsys):
    with pytest.raises(SystemExit) as exit_status:
        main([command, "--help"])
    assert exit_status.value.code == 0
    assert f"python -m benchmarks {command}" in capsys.readouterr().out


def test_the_guides_name_every_command_and_their_options_exist():
    for name, *words in LINES:
        command = getattr(importlib.import_module(f"benchmarks.{COMMANDS[name]}"), name)
        assert parser(command).parse_args(words)
    assert {name for name, *_ in LINES} == {*COMMANDS}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tabel", f"{', '.join(COMMANDS)}. Received: tabel"),
        ("compare_libraries --model ViT-Q/16", "Expected a model's name, one of ViT-Ti/16"),
        ("compare_libraries --libraries=tim", "argument --libraries: expected one of keras_vit"),
        ("compare_libraries --libraries=timm", "Expected --libraries to name keras_vit"),
        ("compare_pipelines", "the following arguments are required: --images"),
        ("compare_pipelines --images=benchmarks", "Expected JPEGs below benchmarks"),
        ("runtimes --family=ViTs", "Expected --family of ViT, class token"),
        ("figure_11_throughput --models=ViT-Z/16", "Expected a model's name"),
        ("figure_11_throughput --max_batch=0", "Expected --max_batch and --image_sizes"),
    ],
)
def test_bad_use_is_one_line(words, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
