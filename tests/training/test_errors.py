"""What a file system says survives being cut."""

import errno
import os

import pytest

from keras_vit.training.errors import first_line

NO_ROOM = os.strerror(errno.ENOSPC)
IN_A_GRAPH = 'Graph execution error:\n\nDetected at node X\n  File "a.py", line 1\n[[x]]\nno room\n'
MAPPED = "Error in user-defined function passed to MapDataset:2 transformation with iterator: "


@pytest.mark.parametrize(
    "text, line",
    [
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
    ],
)
def test_the_first_line_and_the_reason_wherever_it_stands(text, line):
    assert first_line(text) == line
