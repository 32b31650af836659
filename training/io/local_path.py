"""Paths as people write them: of this machine's files, of a store, or refused."""

import os
import pathlib
import re
import urllib.parse
from typing import TYPE_CHECKING

from training.errors import UsageError

if TYPE_CHECKING:
    from etils import epath

# A name of two letters or more: one is a drive. `pathlib` leaves one slash of two.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(name: str | os.PathLike) -> pathlib.Path:
    """Returns the path of a file or folder of this machine, or of one mounted there.

    `~` is the user's home, and `file:///path` is `/path`.

    Raises:
        UsageError: for no path, a path with another scheme, such as `gs://bucket/run`, which would
            become a folder of that name, or one that is not UTF-8, which TensorFlow cannot read.
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
            f"Expected a path of this machine's file system. Received: {text}. Mount what is "
            "elsewhere, and name the folder where it is mounted."
        )
    try:
        return pathlib.Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"Expected a path whose ~ is a user's home. Received: {text}.") from error


def any_path(name: "str | os.PathLike | epath.Path") -> "pathlib.Path | epath.Path":
    """Returns the path of a file or folder of this machine or of a store, such as `gs://bucket/run`.

    Stores are those that `etils.epath` knows: `gs://`, `s3://`, `az://` and what is registered
    with it.

    Raises:
        UsageError: for another scheme, and as `local_path`.
    """
    text = os.fspath(name)
    if not is_remote(text):
        return local_path(text)
    from etils import epath

    try:
        return epath.Path(text)
    except KeyError:
        raise UsageError(
            f"Expected a path of gs://, s3:// or this machine's file system. Received: {text}. "
            "Mount what is elsewhere, and name the folder where it is mounted."
        ) from None


def is_remote(name: "str | os.PathLike | epath.Path") -> bool:
    """Whether a path is of a store, as its scheme says."""
    scheme, separator, _ = os.fspath(name).partition("://")
    return bool(separator and _SCHEME.match(f"{scheme}:/")) and scheme.lower() != "file"
