"""What a file system says survives being cut."""

import errno
import os

import pytest

from keras_vit.training.errors import first_line


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_the_reason_is_kept_wherever_it_stands(code):
    reason = os.strerror(code)
    for text in (
        f"{'a/long/path/' * 100}: {reason}",
        f"{'x' * 300}{reason}{'y' * 3000}",
        f"failed\n{reason}",
    ):
        assert first_line(text).endswith(f": {reason}")
        assert len(first_line(text)) < 300
    assert first_line(f"{reason} in 1") == f"{reason} in 1"


def test_the_names_that_tensorflow_gives_its_operations_are_left_out():
    text = "{{function_node __wrapped__X_device_/job:a}} Invalid JPEG data [Op:X] name: "
    assert first_line(text) == "Invalid JPEG data"
    text = "Error in user-defined function passed to MapDataset:2 transformation with iterator: "
    assert first_line(f"{text}Iterator::Root[1]::Map: no image") == "no image"
    assert first_line("no operation [of that name]") == "no operation [of that name]"


def test_an_error_that_says_nothing():
    assert first_line("") == "str"
    assert first_line("one\ntwo") == "one"


def test_places_in_a_graph_are_left_out():
    text = (
        'Graph execution error:\n\nDetected at node X\n  File "a.py", line 1\n[[x]]\nno room\nmore'
    )
    assert first_line(text) == "no room"
