"""Every command by each of its names, in a process of its own, in a folder of its own."""

import os
import pathlib
import subprocess
import sys

import pytest

from training.__main__ import COMMANDS, main

ROOT = pathlib.Path(__file__).parents[3]
NO_TENSORFLOW = """
import sys, training.__main__
try:
    status = training.__main__.main(sys.argv[1:])
except SystemExit as exit:
    status = exit.code
assert not status and not {"tensorflow", "keras", "matplotlib"} & set(sys.modules)
"""


def run(*arguments, cwd):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


# `training.data` is the package of data sets.
@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"data"}))
def test_modules_are_commands(name, tmp_path):
    result = run("-m", f"training.{name}", "--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: python -m training {name} ")
    result = run("-m", f"training.{name}", "--unknown", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", [*COMMANDS, "few-shot"])
def test_help_needs_no_tensorflow(name, tmp_path):
    result = run("-c", NO_TENSORFLOW, name, "--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"python -m training {name.replace('-', '_')}" in result.stdout


def test_options_alone_train(tmp_path):
    result = run("-m", "training", "--config=missing.py", f"--workdir={tmp_path / 'run'}", cwd=ROOT)
    assert result.returncode == 2 and "missing.py cannot be read" in result.stderr
    result = run("-m", "training", "--workdir=run", cwd=tmp_path)
    assert result.returncode == 2
    assert "required: --config. See python -m training train --help" in result.stderr
    assert not list(tmp_path.iterdir())


def test_help_names_every_command(tmp_path):
    result = run("-m", "training", "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert all(f"\n  {name} " in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["trian"], ["command_options"]])
def test_other_words_are_refused(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "Expected a command, one of train, predict, evaluate" in error
    assert ("Did you mean train?" in error) == (arguments == ["trian"])
