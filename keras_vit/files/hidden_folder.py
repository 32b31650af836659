"""Hidden folders for files that are being written, each locked by its owner."""

import contextlib
import errno
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

# Holds what is moved aside while something else takes its name.
REPLACED = ".replaced"
# A file system that is read-only, or whose rights or flags forbid a change.
_REFUSALS = (errno.EROFS, errno.EACCES, errno.EPERM)
_HIDDEN = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.unfinished", re.DOTALL)


@contextlib.contextmanager
def writing(folder: str | os.PathLike) -> Iterator[None]:
    """Enters a context that makes or changes files in a folder.

    Raises PermissionError if that is refused, and NotADirectoryError if a file stands in the place
    of a folder; each names it and says what to do.
    """
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        for each in (Path(folder), *Path(folder).parents):
            if each.is_file() or (each.is_symlink() and not each.exists()):
                kind = "file" if each.is_file() else "broken link"
                raise NotADirectoryError(f"{each} is a {kind}. Name a directory.") from error
        raise
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        raise PermissionError(
            f"{folder} cannot be written: {error.strerror}. Name another folder, or allow this "
            "user to write there."
        ) from error


def make_folder(folder: str | os.PathLike) -> None:
    """Makes a folder, and those around it, unless it is there; raises as `writing`."""
    with writing(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def hidden_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a new folder beside `path`, which is removed at the end.

    The caller renames its content to `path`, whose parent folders are made. Folders that killed
    processes left for the same `path` are removed first. Raises as `writing`.
    """
    path = Path(path)
    make_folder(path.parent)
    while True:
        with writing(path.parent):
            remove_unfinished(path.parent, path.name)
            folder = Path(tempfile.mkdtemp(".unfinished", f".{path.name}.", path.parent))
        with _lock(folder, wait=True):
            # Before it was locked, another process may have taken it for one that was left.
            if folder.exists():
                try:
                    yield folder
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        shutil.rmtree(folder)
                return


def scratch_folder() -> contextlib.AbstractContextManager[Path]:
    """Returns a context: a new folder in the temporary directory, removed at the end.

    A killed process leaves its folder; the next process that makes one removes it.
    """
    return hidden_folder(Path(tempfile.gettempdir(), "keras_vit"))


def remove_unfinished(folder: str | os.PathLike, name: str | None = None) -> None:
    """Removes the hidden folders of this user's killed processes.

    Files that were moved aside and not replaced get their names back. Without locks (Windows,
    some file systems) nothing is removed, for its owner may be alive. `folder` is around the
    files, `name` that of the only one that is meant.
    """
    folder = Path(folder)
    for left in folder.iterdir() if folder.is_dir() else ():
        found = _HIDDEN.fullmatch(left.name)
        if not found or name not in (None, found[1]):
            continue
        # Another process may remove it first.
        with contextlib.suppress(FileNotFoundError), _lock(left) as locked:
            if locked:
                replaced, target = left / REPLACED, folder / found[1]
                if replaced.exists() and not target.exists():
                    os.replace(replaced, target)
                shutil.rmtree(left)


@contextlib.contextmanager
def _lock(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Yields whether this process has locked a folder of its user; a lock ends with its process."""
    locked = False
    with contextlib.ExitStack() as stack:
        # It may be gone, a link, a file, another user's, or locked by another process.
        with contextlib.suppress(OSError):
            if fcntl is not None:
                file = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
                stack.callback(os.close, file)
                # In a directory that all share, another user may put folders of any content.
                if wait or os.fstat(file).st_uid == os.geteuid():
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                    locked = True
        yield locked
