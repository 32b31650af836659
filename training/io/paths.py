"""Paths of this machine and of stores, such as `gs://bucket/run`, and reading what they name.

Whatever reads or writes a store raises as `attempt`: `UsageError` if the store refuses, and
`TrainingError` if it fails in every attempt.
"""

import codecs
import io
import logging
import os
import pathlib
import re
import time
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import TrainingError, UsageError, first_line

if TYPE_CHECKING:
    from etils import epath

logger = logging.getLogger("keras_vit")

ATTEMPTS = 5
FIRST_WAIT = 1.0  # seconds; each wait after it is twice as long
# A name of two letters or more: one is a drive. `pathlib` leaves one slash of two.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_MOUNT = "Mount what is elsewhere, and name the folder where it is mounted."

Result = TypeVar("Result")


def is_remote(name: "str | os.PathLike | epath.Path") -> bool:
    """Whether a path is of a store, as its scheme says."""
    scheme, separator, _ = os.fspath(name).partition("://")
    return bool(separator and _SCHEME.match(f"{scheme}:/")) and scheme.lower() != "file"


def local_path(name: str | os.PathLike) -> pathlib.Path:
    """Returns the path of a file or folder of this machine, or of one mounted there.

    `~` is the user's home, and `file:///path` is `/path`. Raises `UsageError` for "", another
    scheme, such as `gs://`, which would become a folder of that name, or a path that is not UTF-8,
    which TensorFlow cannot read.
    """
    text = os.fspath(name)
    if not text:
        raise UsageError("Expected a path. Received: ''.")
    if text != text.encode(errors="replace").decode():
        raise UsageError(f"Expected a path in UTF-8. Received: {text!r}.")
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() == "file":
        address = urllib.parse.urlsplit(text)
        if address.netloc in ("", "localhost"):
            return pathlib.Path(urllib.parse.unquote(address.path))
    if scheme:
        raise UsageError(
            f"Expected a path of this machine's file system. Received: {text}. {_MOUNT}"
        )
    try:
        return pathlib.Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"Expected a path whose ~ is a user's home. Received: {text}.") from error


def any_path(name: "str | os.PathLike | epath.Path") -> "pathlib.Path | epath.Path":
    """Returns the path of a file or folder of this machine or of a store.

    Stores are those that `etils.epath` knows: `gs://`, `s3://`, `az://` and registered ones. Raises
    `UsageError` for another scheme, and as `local_path`.
    """
    text = os.fspath(name)
    if not is_remote(text):
        return local_path(text)
    from etils import epath  # slow to import, and most commands never need it

    try:
        return epath.Path(text)
    except KeyError:
        raise UsageError(
            f"Expected a path of gs://, s3:// or this machine's file system. Received: {text}. "
            f"{_MOUNT}"
        ) from None


def absolute_path(name: "str | os.PathLike | epath.Path") -> "pathlib.Path | epath.Path":
    """Returns what `any_path` does, of this machine as an absolute path."""
    path = any_path(name)
    return path if is_remote(path) else path.absolute()


def size_and_time(file: str | os.PathLike) -> tuple[int, int]:
    """Returns the bytes of a file and the nanosecond of its last change; zeros of one in a store.

    A store would be asked for each of a million files.
    """
    if is_remote(file):
        return 0, 0
    stat = os.stat(file)
    return stat.st_size, stat.st_mtime_ns


def cache_folder(name: str) -> pathlib.Path:
    """Returns the folder of a cache of that name: `$XDG_CACHE_HOME/keras-vit/NAME`."""
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root, "keras-vit", name)


def read_text(path: str | os.PathLike) -> str:
    """Returns the text of a file in UTF-8, or in UTF-16 with its mark, as Windows writes it.

    Raises `ValueError`, naming it, for another encoding.
    """
    content = read_path(path, lambda: any_path(path).read_bytes())
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return io.TextIOWrapper(io.BytesIO(content), "utf-16" if marked else "utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Expected a text in UTF-8. Received: {path} ({error}). Save it as UTF-8; Excel names "
            "that “CSV UTF-8”."
        ) from error


def read_lines(path: str | os.PathLike) -> list[str]:
    """Returns the lines of `read_text` that are not blank, without space around them."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def read_path(path: str | os.PathLike, read: Callable[[], Result]) -> Result:
    """Returns what `read` returns, which reads `path`; if that is in a store, as `attempt`."""
    return attempt(read, f"{os.fspath(path)} cannot be read") if is_remote(path) else read()


def attempt(action: Callable[[], Result], failure: str) -> Result:
    """Returns what `action` returns; calls it again after failures of a store that may pass.

    Raises `UsageError` if there is no such store here, or it refuses, and `TrainingError` if it
    failed `ATTEMPTS` times; both begin with `failure`.
    """
    failures = 0
    while True:
        try:
            return action()
        except Exception as error:
            advice = _advice(error)
            if advice is None:
                raise
            # A server answers in several lines.
            reason = first_line(" ".join(str(error).split()) or error)
            if advice:
                raise UsageError(f"{failure}: {reason}. {advice}") from error
            failures += 1
            if failures == ATTEMPTS:
                raise TrainingError(
                    f"{failure} in {ATTEMPTS} attempts: {reason}. Run the same command again when "
                    "the store answers."
                ) from error
            wait = FIRST_WAIT * 2 ** (failures - 1)
            logger.warning("%s: %s. Trying again in %g s.", failure, reason, wait)
            time.sleep(wait)


def _advice(error: Exception) -> str | None:
    """Returns what to do where a store refuses, "" for what may pass, None for other errors."""
    import tensorflow as tf

    errors: Any = tf.errors
    if isinstance(error, (ImportError, NotImplementedError, errors.UnimplementedError)):
        return (
            "The file system of this scheme is not installed: gs:// comes with TensorFlow, s3:// "
            "with tensorflow-io. Install it, or mount the bucket and name that folder."
        )
    refusals = (errors.NotFoundError, errors.PermissionDeniedError, errors.UnauthenticatedError)
    if isinstance(error, (FileNotFoundError, PermissionError, *refusals)):
        return "Check the name of the bucket, and that this machine may read and write it."
    return "" if isinstance(error, (OSError, errors.OpError)) else None
