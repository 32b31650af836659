"""A user's own folder of images as a data set: one sub-folder for each class.

    folder:/data/birds          /data/birds/{crow,finch}/*.jpg           one split, `train`
    folder:/data/birds          /data/birds/{train,test}/{crow,finch}/*  a split for each folder

Classes are the sub-folders in sorted order; hidden folders and those that operating systems and
notebooks leave are passed over. A folder that could be read as two data sets is
refused; what may be meant, but trains another model than one thinks, is logged once.

Files come in the order of a hash of their relative path, so that `train[:90%]` holds every class
and its membership survives copying the folder.
"""

import collections
import functools
import hashlib
import logging
import os
import pathlib
from typing import NamedTuple

from training.io import image_files
from training.io.paths import any_path, is_remote, read_path

# A run opens a folder several times, and is warned once.
_warn_once = functools.cache(logging.getLogger(__name__).warning)

SPLIT_NAMES = ("train", "validation", "valid", "val", "dev", "test")
# Or nearly so: read as classes, these would train a model that tells splits apart.
_LIKE_SPLITS = (*SPLIT_NAMES, "training", "testing", "eval", "evaluation")


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
        UsageError, TrainingError: if `root` is in a store that refuses or fails.
        FileNotFoundError: if it does not exist.
        ValueError: if `root` is empty, if splits and other folders lie side by side, if there
            are no class sub-folders with images, or if the name of a class is not a line of text.
    """
    if not os.fspath(root).strip():
        raise ValueError(
            f"Expected the path of a folder of images. Received: {os.fspath(root)!r}. Name one, "
            "such as folder:/data/birds, or folder:. for the current folder."
        )
    root = any_path(root)
    root = root if is_remote(root) else root.absolute()
    return read_path(root, lambda: _scan(root))


def _scan(root: pathlib.Path) -> ImageFolder:
    if not root.is_dir():
        raise FileNotFoundError(f"Expected a folder of images. {root} does not exist.")
    names = image_files.sub_folders(root)
    others = [name for name in names if name not in SPLIT_NAMES]
    if others and all(name.lower() in _LIKE_SPLITS for name in names):
        raise ValueError(
            f"Expected splits to be called {', '.join(SPLIT_NAMES)}. Found {', '.join(others)} in "
            f"{root}. Rename them."
        )
    like_splits = [name for name in names if name in SPLIT_NAMES]
    if others and "train" in names:
        raise ValueError(
            f"Expected {root} to hold either classes or splits ({', '.join(SPLIT_NAMES)}). Found "
            f"{', '.join(like_splits)} beside {', '.join(others[:5])}. Move these "
            "elsewhere, or into the splits if they are classes."
        )
    if others and like_splits:
        _warn_once(
            "%s: %s, beside other classes, is read as a class, not as a split.",
            root,
            ", ".join(like_splits),
        )
    if names and not others:
        split_roots = {name: root / name for name in names}
    else:
        split_roots = {"train": root}
    class_names = tuple(
        sorted({name for path in split_roots.values() for name in image_files.sub_folders(path)})
    )
    for name in class_names:
        text = name.encode(errors="replace").decode()
        if text != name or not name.strip() or name.splitlines() != [name]:
            raise ValueError(
                "Expected names of classes in UTF-8 and of one line. Received: "
                f"{name!r} in {root}. Rename that folder."
            )
    labels = {name: label for label, name in enumerate(class_names)}
    splits = {
        split: sorted(
            (
                (file.relative_to(root).as_posix(), labels[name])
                for name in image_files.sub_folders(path)
                for file in image_files.images_below(path / name)
            ),
            # Any bytes can be a name.
            key=lambda item: hashlib.sha256(os.fsencode(item[0])).digest(),
        )
        for split, path in split_roots.items()
    }
    unreadable = _unreadable_below(root)
    if not any(splits.values()):
        raise ValueError(
            f"Expected images in one sub-folder for each class, such as {root}/crow/1.jpg, with an "
            f"extension among {', '.join(image_files.EXTENSIONS)}. Found none below {root}"
            f"{', but ' + unreadable if unreadable else ''}."
        )
    if unreadable:
        _warn_once(
            "%s holds %s, which are not read: convert them to .jpg or .png.", root, unreadable
        )
    _warn_of_places(root, split_roots)
    _warn_of_classes(root, class_names, splits)
    return ImageFolder(root, class_names, splits)


def _unreadable_below(root: pathlib.Path) -> str:
    """Returns how many images there are of each format that is not read, "3 .webp", or ""."""
    suffixes = (file.suffix.lower() for file in image_files.files_below(root))
    counts = collections.Counter(suffix for suffix in suffixes if suffix in image_files.UNREADABLE)
    return ", ".join(f"{count} {suffix}" for suffix, count in sorted(counts.items()))


def _warn_of_places(root, split_roots):
    for path in split_roots.values():
        loose = _images_in(path)
        if loose:
            _warn_once(
                "%s: %d images beside the folders of classes, such as %s, are not read.",
                *(path, len(loose), loose[0]),
            )
    first, *others = [
        path / name for path in split_roots.values() for name in image_files.sub_folders(path)
    ]
    below = image_files.sub_folders(first)
    if not (below and others and all(image_files.sub_folders(other) == below for other in others)):
        return
    if not any(map(_images_in, [first, *others])):
        _warn_once(
            "%s: every class, such as %s, holds the folders %s. If these are the classes, move "
            "them up.",
            *(root, first.name, ", ".join(below[:5])),
        )


def _images_in(path: pathlib.Path) -> list[str]:
    """Returns the names of the images in a folder itself."""
    return [
        child.name
        for child in path.iterdir()
        if child.suffix.lower() in image_files.EXTENSIONS
        and not image_files.is_hidden(child.name)
        and child.is_file()
    ]


def _warn_of_classes(root, class_names, splits):
    if len(class_names) == 1:
        _warn_once(
            "%s has one class, %s: expected two or more sub-folders, or there is nothing to tell "
            "apart.",
            root,
            class_names[0],
        )
    for split, files in splits.items():
        found = {label for _, label in files}
        missing = [name for label, name in enumerate(class_names) if label not in found]
        if missing and files:
            _warn_once(
                "%s: %d of %d classes have no image in the split %s: %s%s. Expected each class in "
                "each split.",
                root,
                len(missing),
                len(class_names),
                split,
                ", ".join(missing[:5]),
                ", …" if len(missing) > 5 else "",
            )
