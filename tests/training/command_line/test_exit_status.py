import errno
import logging
import os
import signal
import subprocess
import sys
from unittest import mock

import pytest
import tensorflow as tf

from keras_vit.training import errors
from keras_vit.training.command_line.exit_status import status_of
from tests.other_environments import ROOT

logger = logging.getLogger("keras_vit")


IN_USER_CODE = """in user code:

    File "step.py", line 166, in update  *
        raise ValueError(

    ValueError: """
OF_KERAS = "\x1b[1mshape (8, 32)\nis not (8, 64)\x1b[0m\n\nArguments received by V.call():\n  • x"
OF_TENSORFLOW = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating\nsomething")
NO_ROOM = os.strerror(errno.ENOSPC)
IN_A_GRAPH = 'Graph execution error:\n\nDetected at node X\n  File "a.py", line 1\n[[x]]\nno room\n'
MAPPED = "Error in user-defined function passed to MapDataset:2 transformation with iterator: "


def test_failures_are_one_line(capsys):
    for error, status, line in (
        (errors.UsageError("wrong"), 2, "error: wrong"),
        (errors.TrainingError("wrong"), 1, "error: wrong"),
        (errors.Interrupted("Stopped."), 143, "Stopped."),
        (errors.Interrupted("Stopped.", signal.SIGINT), 130, "Stopped."),
        (ValueError("wrong"), 2, "error: wrong"),
        (FileNotFoundError("wrong"), 2, "error: wrong"),
        (OSError("wrong"), 1, "error: wrong"),
        (OSError(errno.EACCES, "Permission", "a.npz"), 2, "error: Permission: 'a.npz'"),
        (OSError(errno.EROFS, "Read-only", "a.npz"), 1, "error: Read-only: 'a.npz'"),
        (ValueError(IN_USER_CODE + OF_KERAS), 2, "error: shape (8, 32) is not (8, 64)"),
        (OF_TENSORFLOW, 1, "error: OOM when allocating"),
    ):
        assert status_of(mock.Mock(side_effect=error)) == status
        assert capsys.readouterr().err == f"{line}\n"


def test_other_ends_and_the_log_which_is_shown_once_and_only_meanwhile(capsys):
    assert status_of(lambda: None) == 0 and status_of(lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        status_of(lambda: 1 // 0)
    before = logger.handlers[:], logger.level, logger.propagate
    for _ in range(2):
        assert status_of(lambda: logger.info("task %d", 3)) == 0
        output = capsys.readouterr().err
        assert output.count("task 3") == 1 and output.endswith(" task 3\n")
    assert (logger.handlers, logger.level, logger.propagate) == before


CTRL_C = """
import atexit, gc, signal, time
from keras_vit.training.command_line.exit_status import exit_process

def callback(phase, info):
    gc.callbacks.clear()
    signal.raise_signal(NUMBER)

def lost():
    gc.callbacks.append(callback)
    gc.collect()
    time.sleep(60)

def translated():
    try:
        signal.raise_signal(NUMBER)
    except KeyboardInterrupt:
        raise SystemError("of a library") from None

def clean():
    time.sleep(0.5)
    print("cleaned")

def at_the_end():
    atexit.register(clean)
    atexit.register(signal.raise_signal, NUMBER)

signal.signal(NUMBER, signal.SIG_DFL)  # a background job ignores Ctrl-C
exit_process(FUNCTION, [NUMBER])
"""


# By JAX's callback of the garbage collector; by TensorFlow and TFDS; while a process ends.
@pytest.mark.parametrize("where", ["lost", "translated", "at_the_end"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_a_library_ends_the_command_and_leaves_its_cleaning(where, number, run_command):
    code = CTRL_C.replace("FUNCTION", where).replace("NUMBER", str(int(number)))
    result = run_command(code, timeout=50)  # Less than it would sleep.
    if where == "at_the_end":
        assert result.stdout == "cleaned\n"
    else:
        assert (result.returncode, result.stderr) == (128 + number, "interrupted\n")


@pytest.mark.parametrize("words", [("export", "--help"), ("training", "data", "list")])
def test_a_reader_that_leaves_is_no_error(words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", *words]
    with open(writer, "w") as closed:
        result = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, cwd=ROOT)
    # argparse itself is silent of a help that it cannot print, and ends well.
    assert result.stderr == b"" and result.returncode in (0, 141)


def test_the_first_line_and_the_reason_wherever_it_stands():
    for text, line in (
        ("one\ntwo", "one"),
        ("", "str"),
        (f"{'x' * 300}{NO_ROOM}{'y' * 3000}", f"{'x' * 200} …: {NO_ROOM}"),
        (f"failed\n{os.strerror(errno.EDQUOT)}", f"failed: {os.strerror(errno.EDQUOT)}"),
        (f"{NO_ROOM} in 1", f"{NO_ROOM} in 1"),
        # What TensorFlow calls its operations, and where in a graph it was.
        ("{{function_node __X_device_/job:a}} Invalid JPEG [Op:X] name: ", "Invalid JPEG"),
        (f"{MAPPED}Iterator::Root[1]::Map: no image", "no image"),
        ("no operation [of that name]", "no operation [of that name]"),
        (IN_A_GRAPH, "no room"),
    ):
        assert errors.first_line(text) == line
