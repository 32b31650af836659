"""Atomic writes: files and directories appear whole or not at all."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from keras_vit.files.hidden_folder import REPLACED, hidden_folder, writing

from .paths import any_path, is_remote
from .remote_stores import copied


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a path of the same name in a hidden folder beside it; it becomes `path` at the end.

    The folder around it is made. A file of a store is written on this machine and sent at the end.
    After an error, or a kill, `path` is as it was; a killed process leaves the hidden folder until
    `path` is written again. Raises `OSError` if the folder cannot be written, or `path` is a
    directory.
    """
    if is_remote(path):
        with copied(any_path(path), "write") as temporary:
            yield temporary
        return
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"Expected the name of a file to write. Received: {path}")
    with hidden_folder(path) as folder:
        temporary = folder / path.name
        try:
            yield temporary
            with writing(path):
                os.replace(temporary, path)
        except OSError as error:
            if str(error.filename) == str(temporary):
                error.filename = str(path)
            raise


@contextlib.contextmanager
def atomic_directory(path: str | os.PathLike, marker: str) -> Iterator[pathlib.Path]:
    """Yields a directory in a hidden one beside `path`; at the end it takes the place of `path`.

    The folder around it is made. After an error `path` is as it was. A process that is killed in
    the moment between two renames leaves nothing under that name; the next write brings the old
    directory back first.

    Raises:
        FileExistsError: if `path` is a file, or a directory that is not empty and has no file
            `marker`, which shows that it was written here.
        OSError: if the folder around it cannot be written.
    """
    path = pathlib.Path(path)
    replaceable = path.is_dir() and ((path / marker).exists() or not any(path.iterdir()))
    if path.exists() and not replaceable:
        raise FileExistsError(
            f"Expected a new directory, or an earlier one with {marker} to replace. "
            f"Received: {path}, which holds something else. Name another directory."
        )
    with hidden_folder(path) as folder:
        written, replaced = folder / "new", folder / REPLACED
        try:
            written.mkdir()
            yield written
            with writing(path):
                if path.exists():
                    os.replace(path, replaced)
                os.replace(written, path)
        finally:
            if replaced.exists() and not path.exists():
                os.replace(replaced, path)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a file in UTF-8 as `atomic_file` does."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
