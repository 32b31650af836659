"""Text files, and those of one thing a line, such as class names."""

import os

from training.io.local_path import any_path
from training.io.remote_options import local_file


def read_text(path: str | os.PathLike) -> str:
    """Returns the text of a file in UTF-8.

    Raises:
        ValueError: naming it, if it is not in UTF-8.
        OSError: if it cannot be read.
        UsageError, TrainingError: if it is in a store that refuses or fails.
    """
    try:
        with local_file(path) as copy:
            return any_path(copy).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected a text in UTF-8. Received: {path} ({error})") from error


def read_lines(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a text file in UTF-8 that are not blank, without space around them.

    Raises:
        ValueError, OSError: as `read_text`.
    """
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]
