"""Image files: which extensions they have, listing them, and reading them."""

import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from training.errors import first_line
from training.io.local_path import any_path, is_remote
from training.io.read_path import read_path

_JPEG = (".jfif", ".jpe", ".jpeg", ".jpg")
EXTENSIONS = (".bmp", ".gif", *_JPEG, ".png", ".tif", ".tiff", ".webp")
UNREADABLE = (".arw", ".avif", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".jxl", ".nef")
SYSTEM_FOLDERS = ("__MACOSX", "__pycache__", "$RECYCLE.BIN", "System Volume Information")


def is_hidden(name: str) -> bool:
    """Whether a file or folder of that name is hidden, or left by a system and no one's data."""
    return name.startswith(".") or name in SYSTEM_FOLDERS


def sub_folders(folder: pathlib.Path) -> list[str]:
    """Returns the names of the folders in `folder` but hidden ones, sorted."""
    return sorted(
        child.name for child in folder.iterdir() if not is_hidden(child.name) and _is_folder(child)
    )


def _is_folder(path):
    # A store would be asked for each of a million photos.
    if is_remote(path) and path.suffix.lower() in (*EXTENSIONS, *UNREADABLE):
        return False
    return path.is_dir()


def files_below(folder: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields the files in `folder` and its sub-folders but hidden ones, in any order.

    Pipes and devices, which may keep a reader waiting for ever, are no files.

    Args:
        folder: local, or in a store.
    """
    if is_remote(folder):
        yield from _files_in_store(any_path(folder))
        return
    with os.scandir(os.fspath(folder)) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from files_below(entry.path)
            elif _is_file(entry):
                yield pathlib.Path(entry.path)


def _is_file(entry):
    try:
        return entry.is_file()
    except OSError:
        # A link that leads to itself.
        return False


def _files_in_store(folder):
    for child in folder.iterdir():
        if is_hidden(child.name):
            continue
        if _is_folder(child):
            yield from _files_in_store(child)
        else:
            yield child


def images_below(folder: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields the image files in `folder` and its sub-folders but hidden ones, in any order."""
    return (file for file in files_below(folder) if file.suffix.lower() in EXTENSIONS)


def list_images(paths: Sequence[str | os.PathLike]) -> list[pathlib.Path]:
    """Returns the files among `paths` as they are, and of folders the images below, by name.

    Args:
        paths: local, or in a store.

    Raises:
        FileNotFoundError: if one of `paths` does not exist.
        ValueError: if there are no images below a folder, or it is a pipe or a device.
        UsageError, TrainingError: if a store does not answer.
    """
    found = []
    for path in paths:
        files = _list_store(any_path(path)) if is_remote(path) else _list_disk(pathlib.Path(path))
        if files is None:
            raise FileNotFoundError(f"Expected an image or a folder of images. Received: {path}")
        if not files:
            raise ValueError(f"Expected images ({', '.join(EXTENSIONS)}) in {path}. Received: none")
        found += files
    return found


def _list_disk(path):
    if not path.exists():
        return None
    if not (path.is_dir() or path.is_file()):
        raise ValueError(f"Expected an image or a folder of images. Received: {path}, no file")
    return sorted(images_below(path)) if path.is_dir() else [path]


def _list_store(path):
    def listed():
        if path.is_dir():
            return sorted(images_below(path))
        return [path] if path.exists() else None

    return read_path(path, listed)


def read_images(files: Sequence[pathlib.Path], preprocess: str) -> np.ndarray:
    """Returns the images of `files`, (images, height, width, channels), photos turned upright.

    Args:
        files: image files; their content decides the format, not their extension.
        preprocess: text of operations that ends with images of one size, such as
            "decode|resize(224)|value_range(-1, 1)".

    Raises:
        ValueError: for a file that cannot be read as an image, naming it.
    """
    import tensorflow as tf

    from training.data.preprocessing.preprocess import Preprocess

    process = Preprocess(preprocess)
    images = []
    for file in files:
        try:
            images.append(process(tf.constant(file.read_bytes()), tf.constant([0, 0])))
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            raise ValueError(f"{file} cannot be read as an image: {first_line(error)}") from error
    return process.on_device(tf.stack(images)).numpy()
