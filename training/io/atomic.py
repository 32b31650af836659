"""Files that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a temporary path in the same folder that takes the name `path` at the end.

    After an error, or if the process is killed, `path` is what it was before.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a file in UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
