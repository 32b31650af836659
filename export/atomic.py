"""Files and directories that appear whole or not at all."""

import contextlib
import os
import pathlib
import shutil
import tempfile


@contextlib.contextmanager
def whole_file(path):
    """Yields a temporary path in the same folder; at the end it takes the place of `path`.

    Args:
        path: the file to write. Its folder is made if it does not exist.

    Raises:
        OSError: if the folder cannot be written.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(f"Expected the name of a file to write. Received: {path}")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_directory(path, marker):
    """Yields a temporary directory beside `path`; at the end it takes the place of `path`.

    Args:
        path: the directory to write.
        marker: name of a file. A directory already at `path` is replaced only if it is empty
            or holds this file, which shows that it came from an earlier export.

    Raises:
        FileExistsError: if `path` is a file or a directory of something else.
        OSError: if the folder around it cannot be written.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not _replaceable(path, marker):
        raise FileExistsError(
            f"Expected a new directory, or an earlier export with {marker} to replace. "
            f"Received: {path}, which holds something else. Name another directory."
        )
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    written = temporary / "new"
    try:
        written.mkdir()
        yield written
        if path.exists():
            os.replace(path, temporary / "old")
        os.replace(written, path)
    finally:
        shutil.rmtree(temporary)


def _replaceable(path, marker):
    return path.is_dir() and ((path / marker).exists() or not any(path.iterdir()))


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
