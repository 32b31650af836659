"""Image files of this machine and of stores: listing them, and reading them."""

import functools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from training.errors import first_line
from training.io.paths import any_path, is_remote, read_path

_JPEG = (".jfif", ".jpe", ".jpeg", ".jpg")
EXTENSIONS = (".bmp", ".gif", *_JPEG, ".png", ".tif", ".tiff", ".webp")
UNREADABLE = (".arw", ".avif", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".jxl", ".nef")
SYSTEM_FOLDERS = ("__MACOSX", "__pycache__", "$RECYCLE.BIN", "System Volume Information")


def is_hidden(name: str) -> bool:
    """Whether a file or folder of that name is hidden, or a system's rather than a user's."""
    return name.startswith(".") or name in SYSTEM_FOLDERS


def sub_folders(folder: pathlib.Path) -> list[str]:
    """Returns the names of the folders in `folder` but hidden ones, sorted."""
    return sorted(
        child.name for child in folder.iterdir() if not is_hidden(child.name) and _is_folder(child)
    )


def files_below(folder: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields the files in `folder` and its sub-folders but hidden ones, in any order.

    Skips pipes and devices, which may keep a reader waiting for ever.

    Args:
        folder: local, or in a store.
    """
    if is_remote(folder):
        for child in any_path(folder).iterdir():
            if not is_hidden(child.name):
                yield from files_below(child) if _is_folder(child) else (child,)
        return
    # Which asks nothing of the disk for each of a million photos.
    with os.scandir(os.fspath(folder)) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from files_below(entry.path)
            elif _is_file(entry):
                yield pathlib.Path(entry.path)


def _is_folder(path):
    # A store would be asked for each of a million photos.
    if is_remote(path) and path.suffix.lower() in (*EXTENSIONS, *UNREADABLE):
        return False
    return path.is_dir()


def _is_file(entry):
    try:
        return entry.is_file()
    except OSError:
        # A link that leads to itself.
        return False


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
    for name in paths:
        path = any_path(name) if is_remote(name) else pathlib.Path(name)
        files = read_path(path, functools.partial(_images_of, path))
        if files is None:
            expected = f"Expected an image or a folder of images. Received: {path}"
            if is_remote(path) or not path.exists():
                raise FileNotFoundError(expected)
            raise ValueError(f"{expected}, no file")
        if not files:
            raise ValueError(f"Expected images ({', '.join(EXTENSIONS)}) in {path}. Received: none")
        found += files
    return found


def _images_of(path):
    if path.is_dir():
        return sorted(images_below(path))
    return [path] if path.is_file() else None


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
