"""Archives from elsewhere: `.keras` files, the texts behind a TFLite file, modules of TF-Hub."""

import json
import os
import pathlib
import zipfile
from typing import Any, BinaryIO

# Weights shrink a little when they are packed; a bomb, by 1000.
_LARGEST_RATIO = 16
_HARMLESS = 2**24


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Opens a zip archive, whose members may be read into memory.

    Raises ValueError if they claim far more bytes than the file has, and zipfile.BadZipFile or
    OSError if it cannot be read.
    """
    archive = zipfile.ZipFile(file)
    file.seek(0, os.SEEK_END)
    require_plausible(sum(member.file_size for member in archive.infolist()), file.tell())
    return archive


def saved_config(file: pathlib.Path) -> dict[str, Any]:
    """Returns the config.json of a `.keras` file: class and arguments of a model, not built.

    Raises any of several errors if the file is damaged.
    """
    with file.open("rb") as stream, open_archive(stream) as archive:
        return json.loads(archive.read("config.json"))


def require_plausible(claimed: int, size: int) -> None:
    """Raises ValueError if an archive of `size` bytes claims to hold far more, `claimed`."""
    if claimed > max(_HARMLESS, _LARGEST_RATIO * size):
        raise ValueError(f"its members claim {claimed} bytes, and the file has {size}")
