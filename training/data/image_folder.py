"""A user's own folder of images as a data set: one sub-folder for each class.

    folder:/data/birds          /data/birds/{crow,finch}/*.jpg           one split, `train`
    folder:/data/birds          /data/birds/{train,test}/{crow,finch}/*  a split for each folder

Classes are the sub-folders in sorted order. Files come in the order of a hash of their relative
path, so that `train[:90%]` holds every class and its membership survives copying the folder.
"""

import hashlib
import os
import pathlib
from typing import NamedTuple

from training.io import image_files

SPLIT_NAMES = ("train", "validation", "val", "test")


class ImageFolder(NamedTuple):
    """What a folder holds.

    Attributes:
        root: the folder.
        class_names: sub-folders in sorted order; the index is the label.
        splits: for every split, (path relative to `root`, label) of each image in order.
    """

    root: pathlib.Path
    class_names: tuple[str, ...]
    splits: dict[str, list[tuple[str, int]]]


def scan(root: str | os.PathLike) -> ImageFolder:
    """Lists the images below `root`.

    Raises:
        FileNotFoundError: if `root` does not exist.
        ValueError: if `root` is empty, or if there are no class sub-folders with images.
    """
    if not os.fspath(root).strip():
        raise ValueError(
            f"Expected the path of a folder of images. Received: {os.fspath(root)!r}. Name one, "
            "such as folder:/data/birds, or folder:. for the current folder."
        )
    root = pathlib.Path(root).expanduser().absolute()
    if not root.is_dir():
        raise FileNotFoundError(f"Expected a folder of images. {root} does not exist.")
    names = _sub_folders(root)
    if names and all(name in SPLIT_NAMES for name in names):
        split_roots = {name: root / name for name in names}
    else:
        split_roots = {"train": root}
    class_names = tuple(
        sorted({name for path in split_roots.values() for name in _sub_folders(path)})
    )
    labels = {name: label for label, name in enumerate(class_names)}
    splits = {
        split: sorted(
            (
                (file.relative_to(root).as_posix(), labels[name])
                for name in _sub_folders(path)
                for file in image_files.images_below(path / name)
            ),
            key=lambda item: hashlib.sha256(item[0].encode()).digest(),
        )
        for split, path in split_roots.items()
    }
    if not any(splits.values()):
        raise ValueError(
            f"Expected images in one sub-folder for each class, such as {root}/crow/1.jpg, with an "
            f"extension among {', '.join(image_files.EXTENSIONS)}. Found none below {root}."
        )
    return ImageFolder(root, class_names, splits)


def _sub_folders(path: pathlib.Path) -> list[str]:
    return sorted(
        child.name for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")
    )
