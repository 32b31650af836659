"""Folders beside a file, in which it is written before it gets its name."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

# What is moved aside while something else takes its name.
REPLACED = "old"
_HIDDEN = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.unfinished", re.DOTALL)


@contextlib.contextmanager
def hidden_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a new folder beside `path`, which is removed at the end.

    Those that killed processes left of the same `path` are removed at the start.

    Args:
        path: of the file or folder that will be renamed from there.

    Raises:
        OSError: if the folder around `path` does not exist or cannot be written.
    """
    path = Path(path)
    remove_unfinished(path.parent, path.name)
    while True:
        try:
            folder = Path(tempfile.mkdtemp(".unfinished", f".{path.name}.", path.parent))
        except OSError as error:
            error.filename = str(path)
            raise
        with _lock(folder, wait=True):
            # Before it was locked, another process may have taken it for one that was left.
            if folder.exists():
                try:
                    yield folder
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        shutil.rmtree(folder)
                return


def remove_unfinished(folder: str | os.PathLike, name: str | None = None) -> None:
    """Removes what killed processes left beside files that they had not finished.

    What was moved aside and has not been replaced gets its name back. Where a file system or
    Windows has no locks, nothing is known to be left, and all of it stays.

    Args:
        folder: around the files.
        name: of the only file that is meant; None means every one.
    """
    folder = Path(folder)
    for left in folder.iterdir() if folder.is_dir() else ():
        found = _HIDDEN.fullmatch(left.name)
        if not found or name not in (None, found[1]):
            continue
        # Whoever else removes it may be first.
        with contextlib.suppress(FileNotFoundError), _lock(left) as locked:
            if locked:
                replaced, target = left / REPLACED, folder / found[1]
                if replaced.exists() and not target.exists():
                    os.replace(replaced, target)
                shutil.rmtree(left)


@contextlib.contextmanager
def _lock(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Yields whether a folder is there and locked for this process, with which the lock ends."""
    try:
        file = None if fcntl is None else os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        file = None
    if file is None:
        yield False
        return
    try:
        yield _is_locked(file, wait)
    finally:
        os.close(file)


def _is_locked(file: int, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
