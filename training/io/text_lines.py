"""Text files of one thing a line, such as class names."""

import os
import pathlib


def read_lines(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a text file in UTF-8 that are not blank, without space around them."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()]
