"""Every command answers, by its name and by those it had before."""

import importlib
import os
import subprocess
import sys

import pytest

from benchmarks.__main__ import ALIASES, COMMANDS, main
from training.errors import UsageError


@pytest.mark.parametrize("command", [*COMMANDS, *ALIASES])
def test_help_lists_the_options(command, capsys):
    with pytest.raises(SystemExit) as exit_status:
        main([command, "--help"])
    assert exit_status.value.code == 0
    assert f"python -m benchmarks {ALIASES.get(command, command)}" in capsys.readouterr().out


def test_an_unknown_command_is_explained(capsys):
    assert main(["tabel"]) == 2
    error = capsys.readouterr().err
    assert "Received: tabel" in error and all(name in error for name in COMMANDS)


def test_options_may_be_spelled_with_hyphens(monkeypatch):
    received = []
    command = importlib.import_module("benchmarks.loop_overhead")
    monkeypatch.setattr(command, "main", lambda options: received.extend(options) or 0)
    assert main(["loop_overhead", "--steps-per-call", "1-2", "--a-b=c-d"]) == 0
    assert received == ["--steps_per_call", "1-2", "--a_b=c-d"]


@pytest.mark.parametrize("command", ["compare_libraries", "model"])
def test_a_model_that_there_is_not_is_bad_use(command, capsys):
    assert main([command, "--model", "ViT-Q/16"]) == 2
    assert capsys.readouterr().err.startswith("error: Expected a model's name, one of ViT-Ti/16")


def test_bad_use_of_training_is_one_line(monkeypatch, capsys):
    def refuse(options):
        raise UsageError("config.seed: expected a int.")

    monkeypatch.setattr(importlib.import_module("benchmarks.loop_overhead"), "main", refuse)
    assert main(["loop_overhead"]) == 2
    assert capsys.readouterr().err == "error: config.seed: expected a int.\n"


@pytest.mark.long
def test_bad_use_is_one_line_without_tensorflows():
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "benchmarks", "model", "--model", "ViT-Q/16"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
