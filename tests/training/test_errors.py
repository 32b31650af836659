"""What a file system says survives being cut."""

import errno
import os

import pytest

from training.errors import first_line


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


def test_an_error_that_says_nothing():
    assert first_line("") == "str"
    assert first_line("one\ntwo") == "one"
