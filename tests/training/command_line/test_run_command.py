import argparse
import os
import subprocess
import sys

import pytest

from keras_vit import training
from keras_vit.__main__ import EXPORT, KERAS_VIT, main
from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.config import default_config
from keras_vit.training.config.overrides import config_of
from keras_vit.training.config.schema import KEYS
from keras_vit.training.errors import UsageError
from keras_vit.training.loop import trainer
from keras_vit.version import __version__
from tests.other_environments import ROOT

COMMANDS = [*KERAS_VIT.table, *(f"export {name}" for name in EXPORT.table)]
HELP = """
import contextlib, io, sys
from keras_vit.__main__ import main
for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        assert not main([*name.split(), "--help"])
    assert shown.getvalue().startswith(f"usage: keras-vit {name} "), name
    assert "--debug" in shown.getvalue(), name
    assert not {"tensorflow", "keras", "matplotlib"} & set(sys.modules), name
"""


def test_help_needs_no_tensorflow(run_command, tmp_path):
    result = run_command(HELP, *COMMANDS, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_debug_shows_the_traceback_before_the_line(name, refused, monkeypatch):
    monkeypatch.delenv("VIT_DEBUG", raising=False)
    line = refused(*name.split(), "--unknown")
    assert line.startswith("error: ") and line.count("\n") == 1
    shown = refused(*name.split(), "--unknown", "--debug")
    assert shown.startswith("Traceback (most recent call last):\n") and shown.endswith(line)
    monkeypatch.setenv("VIT_DEBUG", "1")
    for words in (["--debug", *name.split()], name.split()):
        assert refused(*words, "--unknown") == shown


def test_senseless_numbers_are_refused(refused):
    for name, option, expected in (
        ("sweep", "--development=1", "a share above 0 and below 1. Received: 1."),
        ("predict", "--top=0", "a whole number, at least 1. Received: 0."),
        ("few_shot", "--seeds=1,1", "each once. Received: 1,1."),
        ("sweep", "--rates=0.001,0.00100000001", "each once. Received: 0.001,0.00100000001."),
        ("few_shot", "--l2=nan", "a finite number, at least 0. Received: nan."),
        ("sweep", "--rates=0.1,0", "a finite number, above 0. Received: 0."),
        ("export web", "--examples=-3", "a whole number, at least 0. Received: -3."),
        ("evaluate", "--scales=1,a", "a factor above 0 and below 100. Received: a."),
    ):
        message = f"error: argument {option.partition('=')[0]}: expected {expected} See "
        assert refused(*name.split(), option).startswith(message)


def test_help_names_every_command_and_key_and_the_version(capsys, printed):
    shown = printed("--help")
    names = [*KERAS_VIT.table, *KERAS_VIT.groups]
    assert all(f"\n  {name} " in shown for name in names)
    with pytest.raises(SystemExit):
        main(["--helpfull"])
    shown = capsys.readouterr().out  # Nothing is cut where the output is a pipe.
    assert all(f" {key.name} " in shown and f" {key.default} " in shown for key in KEYS)
    for words in (["--version"], ["export", "--version"]):
        assert printed(*words) == f"keras-vit {__version__}\n"


def test_every_option_is_explained_and_help_is_as_wide_as_the_terminal(monkeypatch, capsys):
    parsers = [each.parser(name) for each in (KERAS_VIT, EXPORT) for name in each.table]
    for parser in parsers:
        groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        for each in (parser, *(sub for group in groups for sub in group.choices.values())):
            assert not [action.dest for action in each._actions if not action.help], each.prog
    for columns, widest in (("70", 68), ("300", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        with pytest.raises(SystemExit):
            main(["predict", "--help"])
        lines = capsys.readouterr().out.splitlines()
        # Commands, and long lists of choices, are not broken.
        assert max(len(line) for line in lines if line[:3] != "  k") in range(
            widest - 9, widest + 1
        )


COMPLETE = """
eval "$(cat)"
for line in "$@"; do
    COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _shtab_keras_vit keras-vit "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo "${COMPREPLY[@]}"
done
"""


def test_bash_completes_commands_options_config_keys_and_paths(printed, refused, tmp_path):
    script = printed("--completion", "bash")
    (tmp_path / "runs").mkdir()
    for line, expected in (
        ("keras-vit pre", "predict"),
        ("keras-vit export tf", "tflite"),
        ("keras-vit data che", "check"),
        ("keras-vit data check --al", "--all"),
        ("keras-vit predict --sh", "--shards --shard_size"),
        ("keras-vit sweep --config.optimizer.m", "--config.optimizer.momentum"),
        ("keras-vit --config.optimizer.m", "--config.optimizer.momentum"),
        ("keras-vit predict ru", "runs"),
    ):
        command = ["bash", "-c", COMPLETE, "bash", line]
        done = subprocess.run(command, input=script, capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout == f"{expected}\n", (line, done.stderr)
    script = printed("--completion", "zsh")
    # Behind a = as well, and no colon in the name of a value.
    assert script.startswith("#compdef keras-vit\n") and "such as quickstart]:FILE:_files" in script
    assert '"--workdir=[where' in script and '"--finish[end' in script
    message = refused("--completion", "fish")
    assert message == "error: Expected --completion bash or zsh. Received: fish.\n"


def test_a_path_with_spaces_that_was_not_quoted_is_guessed(refused, tmp_path, monkeypatch):
    (tmp_path / "my own photos" / "a crow").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for words, quoted in (
        (["train", "--config=own_photos:my", "own", "photos,steps=3"], 1),
        (["predict", "run", "my", "own", "photos/a", "crow", "--top=1"], 2),
        (["export", "tflite", "run", "--dataset=folder:my", "own", "photos"], 3),
    ):
        text = " ".join([word for word in words[quoted:] if not word.startswith("--top")])
        expected = f"error: Expected quotes around a path with spaces. Did you mean {text!r}?\n"
        assert refused(*words) == expected


def test_options_tell_what_they_do_with_a_path_in_a_store():
    parsers = [each.parser(name) for each in (KERAS_VIT, EXPORT) for name in each.table]
    stores = {item for parser in parsers for item in parser.stores.items()}
    assert {each for each in stores if isinstance(each[1], str)} == {
        *((name, "write") for name in ("output", "json", "masks")),
        *((name, "change") for name in ("run", "cache_dir")),
        *((name, "keep") for name in ("config", "data_dir", "dataset", "shards", "workdir")),
        ("source", "keep"),  # of vtab
        ("folder", "keep"),  # of similar
    }
    predict = KERAS_VIT.parser("predict").stores
    for shards, store in (("gs://bucket/shards", "keep"), (None, "")):
        options = argparse.Namespace(shards=shards)
        assert predict["source"](options) == predict["photos"](options) == store
    assert KERAS_VIT.parser("vtab").stores["source"] == "keep"


def test_training_names_the_files_that_there_are(monkeypatch, tmp_path, printed):
    monkeypatch.setattr(trainer, "train", lambda config, workdir, finish: None)
    options = ["--config=quickstart", f"--workdir={tmp_path}"]
    for report, page in ((True, f", its page in {tmp_path}/report.html"), (False, "")):
        said = printed(*options, f"--config.report={report}")
        assert said == f"The model is in {tmp_path}/model.keras{page}\n"


def test_wrong_words_are_answered_with_the_closest(refused):
    for words, expected in (
        ("Predict", "Did you mean predict? Expected a command, one of train, predict, evaluate"),
        ("exprot", "Did you mean export? Expected a command"),
        ("", "Expected a command"),
        ("data chek cifar10", "argument command: Did you mean check? Expected one of list,"),
        ("data check x --data_dri=x", "Did you mean --data_dir? Received: --data_dri."),
        ("evaluate x --image=8", "Did you mean --image_size? Received: --image."),
        ("train --total_steps=20", "Did you mean --config.total_steps? Received: --total_st"),
        ("data prepare tfds:cifra10", "Did you mean cifar10? Expected a data set of TFDS"),
        ("evaluate --modle=Ti", "Did you mean --model? Received: --modle."),
        ("evaluate x --image_size=big", "argument --image_size: expected a whole number, at le"),
        ("evaluate x --config.seed=1", "unrecognized arguments: --config.seed=1"),
        ("analyze --model=Ti", "the following arguments are required: SOURCE, --output. See"),
    ):
        assert refused(*words.split()).startswith(f"error: {expected}")


def test_changes_of_the_config():
    parser = CommandParser("keras-vit test")
    parser.add_run(config=False)
    parser.add_argument("study")
    config = default_config()
    config.update({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    changes = ["--config.train_preprocess=decode|value_range(-1, 1)", "--config.seed=3"]
    options = parser.parse_args(["--workdir=run", *changes, "head", "--data_dir=data"])
    assert options.study == "head" and options.overrides == changes
    changed = config_of(options, config)
    assert changed.train_preprocess == "decode|value_range(-1, 1)"
    assert (changed.seed, changed.data_dir, changed.eval_batch_size) == (3, "data", 8)
    options = parser.parse_args(["head", "--workdir=run", "--config.sead=3"])
    with pytest.raises(UsageError, match="Did you mean seed"):
        config_of(options, config)


def test_doors_for_scripts_lead_to_functions():
    for name in training.__all__:
        assert callable(getattr(training, name)) and getattr(training, name).__name__ == name


PROGRAMS = {"keras_vit.training": ("--config=quickstart", "--workdir=run")}
PROGRAMS |= {"keras_vit.export": ("hub", "run", "--output=module"), "benchmarks": ("startup",)}
ONE_IS_MISSING = """
import runpy, sys
_, package, program, *words = sys.argv
sys.modules[package], sys.argv = None, [program, *words]
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


@pytest.mark.rows(
    ("keras_vit.training", "", "JAX"),  # No package is missing: another backend.
    ("keras_vit.export", "", "torch"),
    ("benchmarks", "", "torch"),
    *((program, "tensorflow", "tensorflow") for program in PROGRAMS),
    ("keras_vit.training", "jax", "jax"),
    ("keras_vit.export", "tensorflow", "jax"),  # JAX's images are read with TensorFlow.
)
def test_a_backend_that_cannot_be_used(program, missing, backend, as_command, tmp_path):
    packages, work = tmp_path / "packages", tmp_path / "work"
    for folder in (packages, work):
        folder.mkdir()
    if missing and missing != backend:
        # Where JAX is not installed: it is looked for, and not yet imported.
        (packages / f"{backend}.py").touch()
    start = [as_command(ONE_IS_MISSING), missing] if missing else ["-m"]
    command = [sys.executable, *start, program, *PROGRAMS[program]]
    # Beside a clone, `-m benchmarks` would be a package of the user's.
    cwd = ROOT if program == "benchmarks" and not missing else work
    own = {"PYTHONPATH": f"{ROOT}{os.pathsep}{packages}", "KERAS_BACKEND": backend}
    environment = os.environ | own | {"TFDS_DATA_DIR": str(work / "nothing")}
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    error = result.stderr
    assert result.returncode == 2 and error.count("\n") == 1 and not list(work.iterdir()), error
    if missing:
        assert error.startswith(f"error: Expected the package {missing}, which ")
        assert ": pip install " in error
        assert ("reads the images" if missing != backend else "(tensorflow or jax)") in error
    else:
        received = f"Received: {backend!r}.\n"
        assert error == f"error: KERAS_BACKEND: expected tensorflow or jax. {received}"
