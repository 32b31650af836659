"""Keeping two runs out of one folder."""

import contextlib
import errno
import logging
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import IO, Any

from training.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("training")

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class FolderLock:
    """A context that may take a folder for this process, and gives it back at its end.

    The kernel holds the lock for the file `.lock`, which says who took it, and drops it with the
    process, however that ends: what a killed one leaves is stale, and taken like a new one. It
    binds only those that ask, and nobody on Windows or a file system without locks.

    Args:
        folder: made if it does not exist, and removed at the end if it was and is empty.
    """

    def __init__(self, folder: str | os.PathLike):
        self._folder = pathlib.Path(folder).absolute()
        self._made: list[pathlib.Path] = []
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Takes the folder.

        Raises:
            UsageError: if another process has it, naming that, or it is a file.
            OSError: if the folder cannot be made or written.
        """
        path = self._folder / ".lock"
        while self._file is None:
            self._make_folder()
            # Whoever gives the folder back removes it and the file.
            with contextlib.suppress(FileNotFoundError):
                self._file = _locked_file(path)
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()

    def _make_folder(self):
        missing = [each for each in (self._folder, *self._folder.parents) if not each.exists()]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"{error.filename} is a file. Name a directory.") from error
        self._made += missing

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._file is not None:
            os.unlink(self._folder / ".lock")
            self._file.close()
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()


def _locked_file(path: pathlib.Path) -> IO[str] | None:
    """Returns the file, open and locked; None if it is another file by now."""
    file = path.open("a+")
    with _closed_on_error(file):
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise UsageError(
                f"{path.parent} is in use by {file.read() or 'another process'}. Wait until that "
                "ends, or name another directory."
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning(
                "%s is on a file system without locks (%s): nothing keeps a second run out of it.",
                path.parent,
                error.strerror,
            )
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
    file.close()
    return None


@contextlib.contextmanager
def _closed_on_error(file: IO[str]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        file.close()
        raise
