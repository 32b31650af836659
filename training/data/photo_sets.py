"""A user's own photos as a data set: a folder with a sub-folder for each class, or a table.

    folder:/data/birds          /data/birds/{crow,finch}/*.jpg           one split, `train`
    folder:/data/birds          /data/birds/{train,test}/{crow,finch}/*  a split for each folder
    csv:/data/birds.csv         the columns path, label and perhaps split

Classes are the sub-folders, or the labels, in sorted order. Hidden folders, and those that
operating systems and notebooks leave, are passed over. A folder that could be read as two data sets
is refused; one that probably trains another model than its owner means is logged.

Photos of a folder come in the order of a hash of their relative path, which a copy keeps.
"""

import collections
import csv
import hashlib
import io
import logging
import os
import pathlib
from typing import NamedTuple

from training.data.splits import Photo
from training.errors import UsageError
from training.io.image_files import EXTENSIONS, UNREADABLE, walk
from training.io.paths import any_path, is_remote, read_path, read_text

logger = logging.getLogger(__name__)

SPLIT_NAMES = ("train", "validation", "valid", "val", "dev", "test")
# Or nearly so: read as classes, these would train a model that tells splits apart.
_LIKE_SPLITS = (*SPLIT_NAMES, "training", "testing", "eval", "evaluation")
# Root, split and class may be links; deeper ones could lead back to where they stand.
_LINKED_LEVELS = 2


class PhotoSet(NamedTuple):
    """What a folder or table holds.

    Attributes:
        root: the folder that paths are relative to.
        class_names: in sorted order; the index is the label.
        splits: for every split, its photos in order.
    """

    root: pathlib.Path
    class_names: tuple[str, ...]
    splits: dict[str, list[Photo]]


def scan(root: str | os.PathLike) -> PhotoSet:
    """Lists the photos below a folder, in one walk.

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
    if not read_path(root, root.is_dir):
        raise FileNotFoundError(f"Expected a folder of images. {root} does not exist.")
    found = read_path(root, lambda: list(walk(root, _LINKED_LEVELS, sizes=True)))
    tree = _Tree([path for path, size in found if size is None], dict(found))
    prefixes = _prefixes(root, tree)
    names = sorted({name for prefix in prefixes.values() for name in tree.folders_in(prefix)})
    for name in names:
        _check_class_name(name, root)
    labels = {name: label for label, name in enumerate(names)}
    splits: dict[str, list[Photo]] = {
        split: sorted(
            (
                Photo(path, labels[path[len(prefix) :].split("/")[0]], tree.sizes[path])
                for path in tree.images
                if path.startswith(prefix) and "/" in path[len(prefix) :]
            ),
            # Any bytes can be a name.
            key=lambda photo: hashlib.sha256(os.fsencode(photo.path)).digest(),
        )
        for split, prefix in prefixes.items()
    }
    _check_images(root, tree, splits)
    _warn_of_places(root, tree, prefixes)
    _warn_of_classes(root, names, splits)
    return PhotoSet(root, tuple(names), splits)


class _Tree:
    """The folders and files below a folder, by their relative paths."""

    def __init__(self, folders, sizes):
        self.folders, self.sizes = folders, sizes
        files = [path for path, size in sizes.items() if size is not None]
        self.suffixes = collections.Counter(pathlib.PurePath(path).suffix.lower() for path in files)
        self.images = [path for path in files if path.lower().endswith(EXTENSIONS)]
        self._folders_in = collections.defaultdict(list)
        self._images_in = collections.defaultdict(list)
        for paths, owner in ((folders, self._folders_in), (self.images, self._images_in)):
            for path in paths:
                parent, _, name = path.rpartition("/")
                owner[f"{parent}/" if parent else ""].append(name)

    def folders_in(self, prefix):
        return sorted(self._folders_in[prefix])

    def images_in(self, prefix):
        return self._images_in[prefix]


def _prefixes(root, tree):
    """Returns {split: its folder as the beginning of relative paths}."""
    names = tree.folders_in("")
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
        logger.warning(
            "%s: %s, beside other classes, is read as a class, not as a split.",
            root,
            ", ".join(like_splits),
        )
    return {name: f"{name}/" for name in names} if names and not others else {"train": ""}


def _check_class_name(name, where):
    text = name.encode(errors="replace").decode()
    if text != name or not name.strip() or name.splitlines() != [name]:
        raise ValueError(
            "Expected names of classes in UTF-8 and of one line. Received: "
            f"{name!r} in {where}. Rename that class."
        )


def _check_images(root, tree, splits):
    counts = ((suffix, tree.suffixes[suffix]) for suffix in sorted(UNREADABLE))
    unreadable = ", ".join(f"{count} {suffix}" for suffix, count in counts if count)
    if not any(splits.values()):
        raise ValueError(
            f"Expected images in one sub-folder for each class, such as {root}/crow/1.jpg, with an "
            f"extension among {', '.join(EXTENSIONS)}. Found none below {root}"
            f"{', but ' + unreadable if unreadable else ''}."
        )
    if unreadable:
        logger.warning(
            "%s holds %s, which are not read: convert them to .jpg or .png.", root, unreadable
        )


def _warn_of_places(root, tree, prefixes):
    for prefix in prefixes.values():
        loose = tree.images_in(prefix)
        if loose:
            logger.warning(
                "%s: %d images beside the folders of classes, such as %s, are not read.",
                *(root / prefix, len(loose), loose[0]),
            )
    classes = [
        f"{prefix}{name}/" for prefix in prefixes.values() for name in tree.folders_in(prefix)
    ]
    below = tree.folders_in(classes[0]) if len(classes) > 1 else []
    if below and all(
        tree.folders_in(each) == below and not tree.images_in(each) for each in classes
    ):
        logger.warning(
            "%s: every class, such as %s, holds the folders %s. If these are the classes, move "
            "them up.",
            *(root, pathlib.PurePath(classes[0]).name, ", ".join(below[:5])),
        )


def _warn_of_classes(root, class_names, splits):
    if len(class_names) == 1:
        logger.warning(
            "%s has one class, %s: expected two or more sub-folders, or there is nothing to tell "
            "apart.",
            *(root, class_names[0]),
        )
    for split, photos in splits.items():
        found = {photo.label for photo in photos}
        missing = [name for label, name in enumerate(class_names) if label not in found]
        if missing and photos:
            logger.warning(
                "%s: %d of %d classes have no image in the split %s: %s%s. Expected each class in "
                "each split.",
                *(root, len(missing), len(class_names), split, ", ".join(missing[:5])),
                ", …" if len(missing) > 5 else "",
            )


def read_table(file: str | os.PathLike) -> PhotoSet:
    """Reads a table of photos.

    Args:
        file: CSV with the columns `path` (relative to the file, or in a store), `label`, which is a
            name, and perhaps `split`.

    Raises:
        UsageError: if columns or rows are missing, or a file is not there.
        ValueError: if the name of a class is not a line of text.
    """
    file = any_path(file)
    file = file if is_remote(file) else file.absolute()
    rows: list[tuple[str, str, str, int]] = []
    with io.StringIO(read_text(file), newline="") as stream:
        reader = csv.DictReader(stream)
        missing = {"path", "label"} - set(reader.fieldnames or ())
        if missing:
            raise UsageError(
                f"Expected the columns path and label, and perhaps split. {file} has no "
                f"{' and no '.join(sorted(missing))}."
            )
        for row in reader:
            photo = photo_path(file.parent, row["path"] or ".")
            if not (row["label"] and photo.is_file()):
                raise UsageError(
                    f"Expected the path of a photo and its label. Line {reader.line_num} of "
                    f"{file} has {row['path']!r} and {row['label']!r}."
                )
            size = 0 if is_remote(photo) else photo.stat().st_size
            rows.append((row.get("split") or "train", row["path"], row["label"], size))
    if not rows:
        raise UsageError(f"Expected rows of photos. {file} has none.")
    names = sorted({label for _, _, label, _ in rows})
    labels = {name: label for label, name in enumerate(names)}
    splits: dict[str, list[Photo]] = collections.defaultdict(list)
    for name in names:
        _check_class_name(name, file)
    for split, path, name, size in rows:
        splits[split].append(Photo(path, labels[name], size))
    return PhotoSet(file.parent, tuple(names), dict(splits))


def photo_path(root: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the path of a photo of a set, unless its name is an address in a store."""
    return any_path(name) if is_remote(name) else root / name
