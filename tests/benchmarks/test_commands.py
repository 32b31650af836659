"""Every command answers, and every command in the guides can be parsed."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

import pytest

from benchmarks.__main__ import commands, main
from benchmarks.harness import options

COMMANDS = commands()
ROOT = pathlib.Path(__file__).parents[2]
GUIDES = "\n".join(file.read_text() for file in sorted((ROOT / "docs").glob("*.md")))
# But for those of an earlier commit.
LINES = re.findall(
    r"(?<!before && )python -m benchmarks (\w+[^\n`#|]*)", GUIDES.replace("\\\n", " ")
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_the_options(command, capsys):
    with pytest.raises(SystemExit) as exit_status:
        main([command, "--help"])
    assert exit_status.value.code == 0
    assert f"python -m benchmarks {command}" in capsys.readouterr().out


def test_the_guides_name_every_command_and_their_options_exist(monkeypatch):
    received = set()
    monkeypatch.setattr(
        options, "run", lambda command, words: options.parser(command).parse_args(words)
    )
    for line in LINES:
        command, *words = shlex.split(line)
        assert main([command, *words]) == 0, line
        received.add(command)
    assert received == set(COMMANDS)


def test_an_unknown_command_is_explained(capsys):
    assert main(["tabel"]) == 2
    error = capsys.readouterr().err
    assert "Received: tabel" in error and all(name in error for name in COMMANDS)


@pytest.mark.parametrize("words", [["--image_sizes=4,2"], ["--image-sizes", "4,2", "--debug"]])
def test_options_become_arguments(words):
    received = {}

    def growth(image_sizes: Sequence[int], model: str = "ViT-S/16", train: bool = False) -> None:
        """Takes options."""
        received.update(image_sizes=image_sizes, model=model, train=train)

    growth.__doc__ = "Takes options.\n\nArgs:\n    train: a flag."
    options.run(growth, words)
    assert received == {"image_sizes": [4, 2], "model": "ViT-S/16", "train": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare_libraries", "--model", "ViT-Q/16"], "Expected a model's name, one of ViT-Ti/16"),
        (
            ["compare_libraries", "--libraries=tim"],
            "argument --libraries: expected one of keras_hub",
        ),
        (["compare_pipelines"], "the following arguments are required: --images"),
        (["tpu_compile", "--engine=torch"], "argument --engine: expected one of tensorflow"),
        (["loop_overhead", "--steps=30"], "Expected --steps to be a multiple of 20"),
        (["web_page"], "Expected folders and .html files"),
        (["runtimes", "--family=ViTs"], "Expected --family of ViT, class token"),
        (["tpu_compile", "--mesh=tensor=2"], "Expected data=NUMBER,fsdp=NUMBER"),
        (["figure_11_throughput", "--models=ViT-Z/16"], "Expected a model's name"),
        (["figure_11_throughput", "--max_batch=0"], "Expected --max_batch and --image_sizes"),
        (["table_6_exaflops", "ViT-Z/16"], "Expected a model's name"),
    ],
)
def test_bad_use_is_one_line(words, message, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


@pytest.mark.long
def test_bad_use_is_one_line_without_tensorflows():
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "benchmarks", "compare_libraries", "--model", "ViT-Q/16"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
