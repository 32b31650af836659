"""Image files of this machine and of stores, listed."""

import collections
import contextlib
import functools
import importlib.util
import logging
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from .paths import any_path, is_remote, read_path, size_and_time

if TYPE_CHECKING:
    from etils import epath

logger = logging.getLogger("keras_vit")

_Item = TypeVar("_Item")

_JPEG = (".jfif", ".jpe", ".jpeg", ".jpg")
_HEIC = (".heic", ".heif")
_READS_HEIC = importlib.util.find_spec("pillow_heif") is not None
EXTENSIONS = (".avif", ".bmp", ".gif", *_JPEG, ".png", ".tif", ".tiff", ".webp")
EXTENSIONS += (".dib", ".ico", ".j2k", ".jp2", ".pbm", ".pcx", ".pgm", ".pnm", ".ppm", ".tga")
EXTENSIONS += _HEIC if _READS_HEIC else ()
_UNREADABLE = (".arw", ".cr2", ".cr3", ".dng", ".jxl", ".nef", *(() if _READS_HEIC else _HEIC))
# Files that a message names of each kind.
_NAMED = 100
SYSTEM_FOLDERS = ("__MACOSX", "__pycache__", "$RECYCLE.BIN", "System Volume Information")


def is_hidden(name: str) -> bool:
    """Whether a file or folder of that name is hidden, or a system's rather than a user's."""
    return name.startswith(".") or name in SYSTEM_FOLDERS


def walk(
    folder: "pathlib.Path | epath.Path", linked_levels: int = 0, details: bool = False
) -> Iterator[tuple[str, tuple[int, int] | None]]:
    """Yields (relative path, None) of folders and (…, `size_and_time`) of files below a folder.

    In any order, of a folder in a store too. Skips what is hidden, pipes and devices, which may
    keep a reader waiting for ever, and links to nowhere. In `linked_levels` levels, folders may be
    links; deeper ones could lead back. Without `details`, sizes and times are zeros.
    """
    children = (
        _in_store(folder) if is_remote(folder) else _on_disk(folder, linked_levels > 0, details)
    )
    for name, found in children:
        yield name, found
        if found is None:
            for below, found_below in walk(folder / name, linked_levels - 1, details):
                yield f"{name}/{below}", found_below


def _on_disk(folder, linked, details):
    # Asks nothing more of the disk for each of a million photos, unless details are wanted.
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            # A link that leads to itself is an error.
            with contextlib.suppress(OSError):
                if is_hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=linked):
                    yield entry.name, None
                elif entry.is_file():
                    yield entry.name, size_and_time(entry) if details else (0, 0)


def _in_store(folder):
    for child in folder.iterdir():
        if not is_hidden(child.name):
            # A store would be asked for each of a million photos, and once more for their sizes.
            is_image = child.suffix.lower() in (*EXTENSIONS, *_UNREADABLE)
            yield child.name, None if not is_image and child.is_dir() else (0, 0)


def list_images(paths: Sequence[str | os.PathLike]) -> list[pathlib.Path]:
    """Returns the files among `paths` as they are, and of folders the images below, by name.

    Paths may be of stores. A warning names the files of folders that are left out. Raises
    `FileNotFoundError` if one of `paths` does not exist, and `ValueError` if there are no images
    below a folder, or it is a pipe or a device.
    """
    found = []
    for name in paths:
        path = any_path(name) if is_remote(name) else pathlib.Path(name)
        files = read_path(path, functools.partial(_images_of, path))
        if files is None:
            expected = f"Expected an image or a folder of images. Received: {path}"
            if is_remote(path) or not path.exists():
                raise FileNotFoundError(f"{expected}, which does not exist")
            raise ValueError(f"{expected}, no file")
        found += files
    return found


def spread(items: Sequence[_Item], count: int) -> list[_Item]:
    """Returns up to `count` of some items, from the first to the last, evenly apart."""
    if len(items) <= count:
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


def _images_of(path):
    if not path.is_dir():
        return [path] if path.is_file() else None
    files = sorted(path / name for name, details in walk(path) if details is not None)
    images = [file for file in files if file.suffix.lower() in EXTENSIONS]
    left = left_out(each.relative_to(path).as_posix() for each in set(files).difference(images))
    if not images:
        raise ValueError(
            f"Expected images ({', '.join(EXTENSIONS)}) in {path}. Received: {left or 'none'}"
        )
    if left:
        logger.warning("Left out of %s: %s", path, left)
    return images


def left_out(names: Iterable[str]) -> str:
    """Returns files that are not read as images, by extension, with the reason and a remedy."""
    by_suffix = collections.defaultdict(list)
    for name in sorted(names):
        by_suffix[os.path.splitext(name)[1].lower()].append(name)
    groups = []
    for suffix, found in sorted(by_suffix.items()):
        hint = ": convert it to .jpg or .png" if suffix in _UNREADABLE else ""
        hint = ": pip install 'keras-vit-16x16[heic]'" if suffix in _HEIC else hint
        reason = f"{suffix} is not read{hint}" if suffix else "no extension"
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        groups.append(f"{', '.join(found[:_NAMED])}{more} ({reason})")
    return "; ".join(groups)
