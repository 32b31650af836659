"""A user's own photos as a data set: a folder with a sub-folder for each class, or a table.

    folder:/data/birds          /data/birds/{crow,finch}/*.jpg           one split, `train`
    folder:/data/birds          /data/birds/{train,test}/{crow,finch}/*  a split for each folder
    labels:/data/birds          the same, in which a photo that is linked from several classes has
                                several labels
    csv:/data/birds.csv         the columns path, label and perhaps split; in label's place
                                labels, value, or a column for each class or number
    masks:/data/roads           /data/roads/{images,masks}/*, or a split for each folder inside
    ade20k:/data/ADEChallengeData2016   its images/ and annotations/, of 150 classes

Classes are the sub-folders, or the labels, in sorted order; of masks they stand in labels.json.
Hidden folders, and those that operating systems and notebooks leave, are passed over. A folder that
could be read as two data sets is refused; one that probably trains another model than its owner
means is logged.

Photos of a folder come in the order of a hash of their relative path, which a copy keeps.
"""

import collections
import csv
import functools
import hashlib
import io
import itertools
import json
import logging
import os
import pathlib
import re
import shlex
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from keras_vit.photos.imagenet_classes import require_class_name

from ...errors import UsageError
from ...io.image_listing import EXTENSIONS, left_out, walk
from ...io.paths import (
    absolute_path,
    any_path,
    is_remote,
    read_path,
    read_text,
    size_and_time,
)
from ...io.progress_bar import track
from .splits import Photo

logger = logging.getLogger("keras_vit")

SPLIT_NAMES = ("train", "validation", "valid", "val", "dev", "test")
# Names like those of splits: read as classes, they would train a model that tells splits apart.
_LIKE_SPLITS = (*SPLIT_NAMES, "training", "testing", "eval", "evaluation")
# Root, split and class may be links; deeper ones could lead back to where they stand.
_LINKED_LEVELS = 2
# Bytes at the end of a photo that are compared before the rest.
_END = 4096
# The folder of ADE20K's maps.
ADE20K = "annotations"
_COLUMNS = ("path", "label", "split")
# The columns of an answer, of which a table has one, or else one for each class or number.
_ANSWERS = ("label", "labels", "value")
_QUOTED = re.compile('"[^"]*"')
_SEPARATOR = re.compile("sep=.\n", re.IGNORECASE)


class PhotoSet(NamedTuple):
    """The photos of every split in order, below a root, and the names of classes by label."""

    root: pathlib.Path
    class_names: tuple[str, ...]
    splits: dict[str, list[Photo]]
    masks: str = ""  # the folder of maps of the photos in images/, see `mask_path`
    kind: str = "label"  # or "labels", or of a table "numbers"
    # By the path of a photo: 0 and 1 of each class, or numbers, NaN where nobody knows.
    targets: Mapping[str, tuple[float, ...]] = {}


def read(name: str) -> PhotoSet:
    """Lists photos of `folder:/path`, `labels:`, `csv:`, `masks:`, `ade20k:`; errors as of each."""
    kind, colon, path = name.partition(":")
    if colon and kind in ("masks", "ade20k"):
        return read_masks(path, ADE20K if kind == "ade20k" else "masks")
    if colon and kind in ("csv", "labels"):
        return read_table(path) if kind == "csv" else scan(path, several=True)
    return scan(name.removeprefix("folder:"))


def scan(root: str | os.PathLike, several: bool = False) -> PhotoSet:
    """Lists the photos below a folder, in one walk.

    With `several`, a photo has the classes of all folders in which a symbolic or hard link to it,
    or it itself, lies; one that lies beside these folders alone has none.

    Raises:
        FileNotFoundError: if it does not exist.
        ValueError: if `root` is empty, if splits and other folders lie side by side, if there
            are no class sub-folders with images, if the name of a class is not a line of text,
            if a link leads to a folder of photos that is there already, or without `several` to a
            photo of another class.
    """
    if not os.fspath(root).strip():
        raise ValueError(
            f"Expected the path of a folder of images. Received: {os.fspath(root)!r}. Name one, "
            "such as folder:/data/birds, or folder:. for the current folder."
        )
    root = absolute_path(root)
    if not read_path(root, root.is_dir):
        raise FileNotFoundError(f"Expected a folder of images. {root} does not exist.")
    # By the folder that holds them, written as "" and "train/crow/".
    folders: dict[str, list[str]] = collections.defaultdict(list)
    images: dict[str, list[tuple[str, tuple[int, int]]]] = collections.defaultdict(list)
    others: list[str] = []
    for path, details in read_path(root, lambda: list(walk(root, _LINKED_LEVELS, details=True))):
        parent, _, name = path.rpartition("/")
        folder, suffix = f"{parent}/" if parent else "", os.path.splitext(name)[1].lower()
        if details is None:
            folders[folder].append(name)
        elif suffix in EXTENSIONS:
            images[folder].append((name, details))
        else:
            others.append(path)
    for names in folders.values():
        names.sort()
    left = left_out(others)
    real: dict[str, str] = {}
    for folder in images:
        first = real.setdefault(os.path.realpath(root / folder), folder)
        if first != folder:
            raise ValueError(
                f"Expected each folder of photos once. {root / folder} and {root / first} are the "
                "same, by a link. Remove the link."
            )
    prefixes = _prefixes(root, folders[""])
    labels = _labels({name for prefix in prefixes.values() for name in folders[prefix]}, root)
    splits: dict[str, list[Photo]] = {}
    targets: dict[str, tuple[float, ...]] = {}
    for split, prefix in prefixes.items():
        photos = [
            Photo(folder + name, labels.get(folder[len(prefix) :].split("/")[0], -1), *details)
            for folder, inside in images.items()
            if folder.startswith(prefix) and (several or folder != prefix)
            for name, details in inside
        ]
        if several:
            files = _by_file(root, photos)
            photos = [each[0]._replace(label=0) for each in files]
            for first, *links in files:
                present = {each.label for each in (first, *links)}
                targets[first.path] = tuple(float(label in present) for label in labels.values())
        splits[split] = _in_order(photos)
    if not labels or not any(splits.values()):
        raise ValueError(
            f"Expected images in one sub-folder for each class, such as {root}/crow/1.jpg, with an "
            f"extension among {', '.join(EXTENSIONS)}. Found none below {root}"
            f"{', but ' + left if left else ''}."
        )
    if not several:
        _require_one_class(root, [*itertools.chain(*splits.values())])
    kind = "labels" if several else "label"
    found = PhotoSet(root, tuple(labels), splits, kind=kind, targets=targets)
    for doubt in _doubts(found, prefixes, folders, images, left):
        logger.warning("%s: %s", root, doubt)
    return found


def _require_one_class(root, photos):
    for first, *links in _by_file(root, photos, every=False):
        if differ := [each.path for each in links if each.label != first.label]:
            raise ValueError(
                f"Expected one class of each photo. {root / first.path} and {root / differ[0]} are "
                "the same file, by a link. Remove one, or train several labels: "
                f"--config={shlex.quote(f'own_photos:labels:{root}')}"
            )


def _by_file(root, photos, every=True):
    """Returns lists of the photos that are one file, by links; the path of least depth first.

    Those that cannot be links to one are left out unless `every`.
    """
    files = collections.defaultdict(list)
    # Links share size and time: the disk is asked for few photos once more. A store has no links.
    alike = collections.Counter(() if is_remote(root) else ((p.size, p.modified) for p in photos))
    photos = photos if every else [p for p in photos if alike[p.size, p.modified] > 1]
    for photo in sorted(photos, key=lambda photo: (photo.path.count("/"), photo.path)):
        stat = os.stat(root / photo.path) if alike[photo.size, photo.modified] > 1 else None
        files[(stat.st_dev, stat.st_ino) if stat else photo.path].append(photo)
    return [*files.values()]


def _in_order(photos):
    # Any bytes can be a name.
    return sorted(photos, key=lambda photo: hashlib.sha256(os.fsencode(photo.path)).digest())


def _prefixes(root, names):
    """Returns {split: its folder as the beginning of relative paths}, given the folders in root."""
    like_splits = [name for name in names if name.lower() in _LIKE_SPLITS]
    others = [name for name in names if name not in SPLIT_NAMES]
    if like_splits and others:
        found = ", ".join(dict.fromkeys(like_splits + others[:5]))
        raise ValueError(
            f"Expected {root} to hold either classes or splits ({', '.join(SPLIT_NAMES)}). Found "
            f"{found}. Rename them, or move one kind elsewhere."
        )
    return {name: f"{name}/" for name in like_splits} or {"train": ""}


def _labels(names, where):
    """Returns {name of a class: label}, in sorted order."""
    names = sorted(names)
    for name in names:
        require_class_name(name, str(where))
    alike = collections.defaultdict(list)
    for name in names:
        letters = unicodedata.normalize("NFKD", name).casefold()
        # Without accents, and what no eye sees, such as a space of no width.
        seen = (each for each in letters if unicodedata.category(each) not in ("Mn", "Cf"))
        alike["".join(seen)].append(name)
    for close in alike.values():
        if len(close) > 1:
            logger.warning(
                "%s: the classes %s differ in case, accents or hidden characters alone. Expected "
                "one, if they are one class.",
                *(where, ", ".join(close)),
            )
    return {name: label for label, name in enumerate(names)}


def _doubts(found, prefixes, folders, images, left):
    """Yields what probably trains another model than the owner of the photos means."""
    if left:
        yield f"left out: {left}"
    for prefix in prefixes.values():
        if images[prefix] and not found.targets:
            yield (
                f"{len(images[prefix])} images beside the folders of classes, such as "
                f"{prefix}{images[prefix][0][0]}, are not read."
            )
    first, *others = (
        f"{prefix}{name}/" for prefix in prefixes.values() for name in folders[prefix]
    )
    same = all(folders[each] == folders[first] for each in others)
    if others and folders[first] and same and not any(images[each] for each in (first, *others)):
        yield (
            f"every class, such as {first}, holds the folders {', '.join(folders[first][:5])}. If "
            "these are the classes, move them up."
        )
    if found.targets:
        rows = np.array([*found.targets.values()])
        if rows.sum(axis=1).max() < 2:
            yield "no photo is in two classes. Expected links: a copy counts as another photo."
        for label in np.flatnonzero(rows.all(axis=0)):
            yield (
                f"every photo is in {found.class_names[label]}. Put photos of no class beside the "
                "folders of classes."
            )
    elif len(found.class_names) == 1:
        yield f"has one class, {found.class_names[0]}: expected two or more sub-folders."
    for split, photos in found.splits.items():
        labels = {photo.label for photo in photos}
        if found.targets:
            labels = {
                *np.flatnonzero(np.any([found.targets[each.path] for each in photos], axis=0))
            }
        missing = [name for label, name in enumerate(found.class_names) if label not in labels]
        if missing and photos:
            yield (
                f"{len(missing)} of {len(found.class_names)} classes have no image in the split "
                f"{split}, such as {missing[0]}. Expected each class in each "
                "split: add photos of it, or remove it."
            )


def read_masks(root: str | os.PathLike, masks: str = "masks") -> PhotoSet:
    """Lists photos with maps of classes: `images/road.jpg` with `masks/road.png` and so on.

    Below both, folders with the names of splits make splits. Masks are PNG files of one channel,
    gray or of a palette, whose values are the numbers of the classes, and 255 of none.
    `labels.json`, a list of names, or an object of number to name, says the classes; without it
    all masks are read for the largest number. `masks` is the folder of the maps: those of ADE20K
    have 0 for no class, and its `objectInfo150.txt` the names from 1 on.

    Raises:
        UsageError: if a folder or a mask is missing, or the file of names is damaged.
    """
    root = absolute_path(root)
    found = {}
    for part in ("images", masks):
        folder = root / part
        if not read_path(root, folder.is_dir):
            raise UsageError(
                f"Expected a folder with images/ and {masks}/. {root} has no {part}/: put photos, "
                "and PNG masks of the same names, into them."
            )
        files = read_path(folder, functools.partial(_walked, folder))
        found[part] = {path: details for path, details in files if details is not None}
    splits: dict[str, list[Photo]] = collections.defaultdict(list)
    for path, details in found["images"].items():
        if os.path.splitext(path)[1].lower() in EXTENSIONS:
            first = path.partition("/")[0]
            split = first if "/" in path and first.lower() in _LIKE_SPLITS else "train"
            splits[split].append(Photo(f"images/{path}", 0, *details))
    names = [photo.path for photos in splits.values() for photo in photos]
    paths = {name: mask_path(name, masks) for name in names}
    lacking = [name for name in names if paths[name].partition("/")[2] not in found[masks]]
    if not names or lacking:
        raise UsageError(
            f"Expected photos in {root}/images, each with a mask of the same name. Received: "
            + (f"{lacking[0]} without {paths[lacking[0]]}." if lacking else "no photos.")
        )
    if masks == ADE20K:
        classes = _ade20k_classes(root / "objectInfo150.txt")
    else:
        classes = _mask_classes(root, [root / path for path in paths.values()])
    splits = {split: _in_order(photos) for split, photos in splits.items()}
    return PhotoSet(root, classes, splits, masks)


def _walked(folder):
    return list(walk(folder, 1, details=True))


def mask_path(photo: str, masks: str) -> str:
    """Returns the path of the mask of a photo, `images/…` below the root, in the folder `masks`."""
    return f"{masks}/{os.path.splitext(photo.removeprefix('images/'))[0]}.png"


def read_mask(content: bytes, name: str) -> np.ndarray:
    """Returns the numbers of a PNG mask, int32 (height, width, 1).

    Raises ValueError, naming it, if it is no image of one channel.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            mode, found = image.mode, np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{name} cannot be read as an image: {error}") from error
    if found.ndim != 2:
        raise ValueError(
            f"Expected a mask of one channel, gray or with a palette, whose values are numbers of "
            f"classes. Received: {name}, of the kind {mode}. Save colors as numbers."
        )
    return found.astype(np.int32)[..., None]


def _ade20k_classes(file):
    """Returns the names in the last column of ADE20K's table of 150 classes."""
    try:
        rows = [line.split("\t") for line in read_text(file).splitlines()[1:]]
        names = [row[-1].strip() for row in rows if row[1:]]
        if [row[0].strip() for row in rows if row[1:]] != [str(n + 1) for n in range(150)]:
            raise ValueError("rows 1 to 150")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"Expected the names of 150 classes in {file}, which comes with ADEChallengeData2016. "
            f"It is missing or damaged: {error}."
        ) from error
    return tuple(names)


def _mask_classes(root, files):
    file = root / "labels.json"
    if not read_path(root, file.is_file):
        logger.warning("%s has no labels.json: all masks are read for their classes.", root)
        most = 0
        for each in track(files, "reading masks"):
            mask = read_mask(each.read_bytes(), str(each))
            most = max(most, int(mask[mask < 255].max(initial=0)))
        return tuple(map(str, range(most + 1)))
    try:
        names = json.loads(read_text(file))
        if isinstance(names, dict):
            names = [names[str(number)] for number in range(len(names))]
        if not isinstance(names, list) or len(names) < 2:
            raise ValueError("two names at least")
    except (ValueError, KeyError) as error:
        raise UsageError(
            f'Expected {file} to hold names of classes, ["road", "tree"] or {{"0": "road", '
            f'"1": "tree"}}. It is damaged, or a number is missing: {error}.'
        ) from error
    for name in names:
        require_class_name(name, str(file))
    return tuple(names)


def read_table(file: str | os.PathLike) -> PhotoSet:
    """Reads a table of photos, CSV with the columns `path`, `label` and perhaps `split`.

    A path is relative to the table, or in a store; a label is the name of a class. Commas,
    semicolons or tabs separate cells, as the first line shows; rows without any text are left out.

    In the place of `label` stands `labels`, names between `;`, of which there may be none; or
    `value`, a number; or a column for each class, of 0, 1 and empty cells where nobody knows; or
    several of numbers, where such cells are empty too.

    Raises:
        UsageError: if columns, rows or cells are missing, a row has more cells, a cell more
            lines or an open quote, a file is not there, a photo is listed twice, or splits differ
            from others or usual ones in case.
        ValueError: if the name of a class is not a line of text.
    """
    file = absolute_path(file)
    if not read_path(file, file.is_file):
        raise UsageError(f"Expected the CSV file of a table of photos. {file} is not one.")
    rows: list[tuple[str, str, dict[str, str], tuple[int, ...]]] = []
    lines: dict[str, int] = {}
    text = read_text(file)
    if "\0" in text:
        raise UsageError(f"Expected a text without the character 0. Save {file} as CSV in UTF-8.")
    # Where Excel writes the separator, the header is the second line.
    above = text[: text.find("\n") + 1] if _SEPARATOR.match(text) else ""
    # A quoted name may hold any of them.
    header = _QUOTED.sub("", text[len(above) :].partition("\n")[0])
    separator = above[4:5] or max(",;\t", key=header.count)
    stream = io.StringIO(text[len(above) :], newline="")
    reader = csv.DictReader(stream, strict=True, skipinitialspace=True, delimiter=separator)
    try:
        columns = list(filter(None, reader.fieldnames or ()))
        reserved = {*_COLUMNS, *_ANSWERS}
        misspelt = {name.strip().lower() for name in columns} & reserved - set(columns)
        named = [name for name in columns if name in _ANSWERS]
        answers = named or [name for name in columns if name not in reserved]
        is_double = len(named) > 1 or len(columns) > len(set(columns))
        if "path" not in columns or not answers or misspelt or is_double:
            raise UsageError(
                f"Expected the columns path and label, and perhaps split, in small letters, "
                "separated by commas, semicolons or tabs; or in label's place labels, value, or a "
                f"column for each class or number. {file} has {','.join(columns)}."
            )
        for cells in reader:
            row = {name: (cell or "").strip() for name, cell in cells.items() if name}
            if not any(row.values()) and not any(cells.get(None) or ()):
                continue
            photo = photo_path(file.parent, row["path"] or ".")
            if "\\" in row["path"] and not photo.is_file():
                row["path"] = row["path"].replace("\\", "/")
                photo = photo_path(file.parent, row["path"])
            number = reader.line_num + bool(above)
            needed = ("path", "label", "value", "split")
            empty = [name for name in needed if name in row and not row[name]]
            real = photo if is_remote(photo) else os.path.realpath(photo)
            first = lines.setdefault(os.fspath(real), number)
            if empty:
                wrong = f"no {empty[0]}"
            elif not photo.is_file():
                wrong = f"{photo}, which is not there"
            elif any("\n" in cell or "\r" in cell for cell in row.values()):
                wrong = "a cell of several lines: close its quote, or leave its column out"
            elif any(cells.get(None) or ()):
                wrong = f"more than {len(columns)} cells: quote a cell that holds {separator!r}"
            elif first != number:
                wrong = f"{row['path']}, which line {first} has too: expected each photo once"
            else:
                split = row.get("split") or "train"
                told = {name: row[name] for name in answers}
                rows.append((split, row["path"], told, size_and_time(photo)))
                continue
            raise UsageError(f"Line {number} of {file} has {wrong}.")
    except csv.Error as error:
        # The number is that of the row before it.
        number = reader.line_num + bool(above) + 1
        raise UsageError(f"Line {number} of {file} is no row of CSV: {error}.") from error
    if not rows:
        raise UsageError(f"Expected rows of photos. {file} has none.")
    told = {path: cells for _, path, cells, _ in rows}
    kind, labels, targets = _targets(told, file)
    splits: dict[str, list[Photo]] = collections.defaultdict(list)
    for split, path, cells, details in rows:
        label = labels[cells["label"]] if kind == "label" else 0
        splits[split].append(Photo(path, label, *details))
    alike = len({name.casefold() for name in splits}) < len(splits)
    if alike or any(name.lower() in SPLIT_NAMES and not name.islower() for name in splits):
        raise UsageError(
            f"Expected splits in one spelling, in small letters. {file} has {', '.join(splits)}."
        )
    return PhotoSet(file.parent, tuple(labels), dict(splits), kind=kind, targets=targets)


def _targets(told, file):
    """Returns the kind of a table, {name of a class or number: place}, and the photos' targets.

    `told` is {path: {column: cell}}.
    """
    columns = [*next(iter(told.values()))]
    if columns == ["label"]:
        return "label", _labels({cells["label"] for cells in told.values()}, file), {}
    if columns == ["labels"]:
        lists = {
            path: {name.strip() for name in cells["labels"].split(";")} - {""}
            for path, cells in told.items()
        }
        labels = _labels(set().union(*lists.values()), file)
        if not labels:
            raise UsageError(f"Expected names in the column labels. {file} has none.")
        rows = {path: tuple(float(n in names) for n in labels) for path, names in lists.items()}
        return "labels", labels, rows
    numbers = {
        path: tuple(_number(cell, path, name, file) for name, cell in cells.items())
        for path, cells in told.items()
    }
    array = np.array([*numbers.values()])
    is_class = columns != ["value"] and bool(np.isin(array[~np.isnan(array)], (0, 1)).all())
    for name, cells in zip(columns, array.T, strict=True):
        require_class_name(name, str(file))
        known = cells[~np.isnan(cells)]
        if not len(known) or (not is_class and np.ptp(known) == 0):
            wanted = "a number in one row at least" if is_class else "numbers that differ"
            raise UsageError(f"Expected {wanted} in the column {name} of {file}. It has none.")
    return "labels" if is_class else "numbers", {n: i for i, n in enumerate(columns)}, numbers


def _number(cell, path, column, file):
    try:
        found = float(cell or "nan")
        # Python takes 1_000 for a number.
        if not cell or (abs(found) < float(np.finfo("float32").max) and "_" not in cell):
            return found
    except ValueError:
        pass
    raise UsageError(
        f"Expected a finite number, such as 0, 1 or 2.5, in the column {column} of {file}. "
        f"Received: {cell!r} for {path}. Classes stand in a column label or labels."
    )


def count_copies(sizes: Mapping[pathlib.Path, int], others: Mapping[pathlib.Path, int]) -> int:
    """Counts the photos that have the content of one of `others`, given {file: size in bytes}."""

    def content(file, first=0):
        with file.open("rb") as stream:
            stream.seek(first)
            return hashlib.sha256(stream.read()).digest()

    known = {**sizes, **others}
    # Photos of one size seldom end alike: few are read as a whole.
    steps = (known.get, lambda file: content(file, max(0, known[file] - _END)), content)
    found, left = list(sizes), list(others)
    for identity in steps:
        identities = {identity(file) for file in left}
        found = [file for file in found if identity(file) in identities]
        identities = {identity(file) for file in found}
        left = [file for file in left if identity(file) in identities]
    return len(found)


def photo_path(root: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the path of a photo of a set, unless its name is an address in a store."""
    return any_path(name) if is_remote(name) else root / name
