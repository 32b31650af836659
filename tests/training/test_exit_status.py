"""What a command's process exits with, and what it prints."""

import argparse
import logging
import os
import pathlib
import subprocess
import sys

import pytest

from training import errors
from training.exit_status import command_main

logger = logging.getLogger("training")


def status_of(run):
    return command_main(argparse.ArgumentParser, run)([])


@pytest.mark.parametrize(
    "error, status",
    [
        (errors.UsageError("wrong"), 2),
        (errors.TrainingError("wrong"), 1),
        (errors.Interrupted("wrong"), 143),
        (ValueError("wrong"), 2),
        (FileNotFoundError("wrong"), 2),
        (OSError("wrong"), 1),
    ],
)
def test_failures_are_one_line(error, status, capsys):
    def run(options):
        raise error

    assert status_of(run) == status
    assert capsys.readouterr().err == "error: wrong\n"


def test_what_tensorflow_runs_out_of_is_one_line(capsys):
    def run(options):
        import tensorflow as tf

        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating\nsomething")

    assert status_of(run) == 1
    assert capsys.readouterr().err == "error: OOM when allocating\n"


def test_an_interruption_is_no_error_of_ours(capsys):
    def run(options):
        raise KeyboardInterrupt

    assert status_of(run) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_success_and_results():
    assert status_of(lambda options: None) == 0
    assert status_of(lambda options: 1) == 1


def test_faults_of_the_program_keep_their_trace():
    with pytest.raises(ZeroDivisionError):
        status_of(lambda options: 1 // 0)


def test_the_log_is_shown_once_and_only_meanwhile(capsys):
    before = logger.handlers[:], logger.level, logger.propagate
    for _ in range(2):
        assert status_of(lambda options: logger.info("task %d", 3)) == 0
        output = capsys.readouterr().err
        assert output.count("task 3") == 1 and output.endswith(" task 3\n")
    assert (logger.handlers, logger.level, logger.propagate) == before


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "training", "--help"],
        ["-m", "training", "train", "--help"],
        ["-m", "export", "--help"],
        ["-m", "benchmarks", "--help"],
        ["-c", "from export.console_script import script; script()", "--help"],
    ],
    ids=" ".join,
)
def test_a_reader_that_leaves_is_no_error(command):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        result = subprocess.run(
            [sys.executable, *command],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            cwd=pathlib.Path(__file__).parents[2],
        )
    # argparse itself is silent of a help that it cannot print, and ends well.
    assert result.stderr == "" and result.returncode in (0, 141)
