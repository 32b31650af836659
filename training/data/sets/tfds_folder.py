"""Data sets as TFDS prepares them on disk: found and described.

TFDS itself looks only for the newest version it knows and starts a download when it is not
there. Listing the folders shows every version that is there, at once.
"""

import dataclasses
import fnmatch
import os
import pathlib
import re
from typing import Any

import numpy as np

from ...errors import TrainingError, first_line
from ...io.paths import absolute_path, read_path, read_text
from .known_datasets import DatasetSpec

# Describes the images of a set whose photos are read so.
UPRIGHT = "turned as its EXIF orientation says"
# Name of a format of files; the other that is read is "tfrecord".
ARRAY_RECORD = "array_record"
INFO = "dataset_info.json"
# As TFDS writes it; of a copy, 03.0.0, nothing is read.
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")


class NotPreparedError(FileNotFoundError):
    """The data set is not on disk; the message says how to get it."""


def resolve_data_dir(data_dir: str | os.PathLike | None) -> pathlib.Path:
    """Returns `data_dir` as an absolute path; a store's, such as gs://bucket/tfds, behaves alike.

    Empty or None is the default of TFDS: `$TFDS_DATA_DIR` or `~/tensorflow_datasets`. Errors as
    `any_path`.
    """
    return absolute_path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def find(
    builder: str, version: str = "*", data_dir: str | os.PathLike | None = None
) -> pathlib.Path | None:
    """Returns the folder of the newest prepared version of a builder, or None.

    Args:
        builder: `name` or `name/config`.
        version: that matches, such as "3.0.2", "3.*.*" or "*".
        data_dir: as in `resolve_data_dir`.

    Raises:
        NotPreparedError: if its preparation was interrupted.
    """
    folder = resolve_data_dir(data_dir) / builder
    complete = read_path(
        folder, lambda: {each: (each / INFO).is_file() for each in _versions(folder, version)}
    )
    if complete and not any(complete.values()):
        raise NotPreparedError(
            f"{[*complete][-1]} exists but holds no {INFO}, so its preparation was "
            f"interrupted. Delete the folder and prepare {builder} again."
        )
    return next((each for each in reversed(complete) if complete[each]), None)


def read(
    spec: DatasetSpec, data_dir: str | os.PathLike | None = None
) -> tuple[DatasetSpec, pathlib.Path, Any]:
    """Returns a prepared data set: its facts, its folder and its `tfds.core.DatasetInfo`.

    The facts are those of `spec`, with the sizes, and without a row in the table the classes, that
    are on disk.

    Raises:
        NotPreparedError: if it is not on disk, with the command or recipe that gets it.
        ValueError: if its description is damaged, or it has another format or size.
        OSError: if it cannot be read.
    """
    place = find(spec.builder, spec.version, data_dir)
    if place is None:
        raise NotPreparedError(_how_to_get(spec, data_dir))
    info = read_info(place)
    _require_pixels(info)
    if not spec.num_classes:
        num_classes, names = _label_facts(info)
        spec = dataclasses.replace(spec, num_classes=num_classes, class_names=names)
    sizes = {split: each.num_examples for split, each in info.splits.items()}
    for split, size in spec.sizes.items():
        actual = sizes.get(split, size)
        if actual not in (size, *spec.other_sizes.get(split, ())):
            raise ValueError(
                f"Expected {size} examples in the split {split!r} of {spec.builder}. "
                f"{place} holds {actual}. Prepare it again, or read it under another "
                f"name as tfds:{spec.builder}:{info.version}."
            )
    return dataclasses.replace(spec, sizes=sizes), place, info


def _how_to_get(spec, data_dir):
    folder = resolve_data_dir(data_dir)
    first = f"{spec.name} ({spec.builder} {spec.version}) is not prepared in {folder}."
    if spec.obtain == "private":
        return f"{first} {spec.note}."
    get = f"Download and write it ({spec.note}) with:"
    if spec.obtain == "manual":
        get = (
            f"It needs files got by hand: {spec.note}. The manual folder is "
            f"{folder / 'downloads' / 'manual'} (or --manual_dir). Then write it with:"
        )
    option = f" --data_dir={data_dir}" if data_dir else ""
    return f"{first} {get} keras-vit data prepare {spec.name}{option}"


def read_info(directory: pathlib.Path) -> Any:
    """Returns the `tfds.core.DatasetInfo` of the data set prepared in a version's folder.

    Raises:
        ValueError: if it is damaged, or of another format.
        OSError: if it cannot be read.
    """
    import tensorflow_datasets as tfds

    try:
        info = read_path(directory, lambda: tfds.builder_from_directory(directory).info)
    except (OSError, TrainingError):
        raise
    # A damaged description fails in many ways, depending on which byte it is.
    except Exception as error:
        raise ValueError(
            f"Expected the description of a data set. {directory} is damaged "
            f"({type(error).__name__}: {first_line(error)}). Prepare the data set again."
        ) from error
    if info.file_format.value not in ("tfrecord", ARRAY_RECORD):
        raise ValueError(
            f"Expected TFRecord or ArrayRecord files. {directory} holds {info.file_format.value}: "
            "prepare the data set again with file_format='tfrecord'."
        )
    if any(length < 0 for split in info.splits.values() for length in split.shard_lengths):
        raise ValueError(f"{directory} is damaged: a file of less than no examples.")
    return info


def _require_pixels(info: Any) -> None:
    """Raises `ValueError` unless the feature `image` is encoded, or an array of pixels."""
    from tensorflow_datasets import features

    image = dict(info.features.items()).get("image")
    is_right = image is None
    if isinstance(image, features.Image):
        # Floats are stored as the bytes of four channels.
        is_right = image.np_dtype in (np.uint8, np.uint16)
    elif isinstance(image, features.Tensor):
        shape, stored = tuple(image.shape), tuple(image.get_serialized_info().shape)
        is_array = len(shape) == 3 and shape[-1] in (1, 3) and stored == shape
        # A scalar of bytes is a whole file.
        is_right = (image.np_dtype == np.uint8 and is_array) or image.np_dtype == np.object_
        is_right &= bool(shape) != (image.np_dtype == np.object_)
    if not is_right:
        raise ValueError(
            f"Expected the feature `image` of {info.full_name} to be a tfds.features.Image of "
            "uint8 or uint16, or a Tensor (height, width, 1 or 3) of uint8 that is not encoded. "
            f"Received: {' '.join(repr(image).split())}. Write the data set again with such images."
        )


def _label_facts(info: Any) -> tuple[int, tuple[str, ...] | None]:
    """Returns the number of classes of the feature `label`, and their names if recorded."""
    members = dict(info.features.items())
    label = members.get("label")
    # A sequence of labels has the type of one.
    label = getattr(label, "feature", label)
    num_classes = getattr(label, "num_classes", None) or 0
    is_listed = num_classes and len(members["label"].shape) < 2
    if "image" not in members or not is_listed:
        raise ValueError(
            f"Expected {info.full_name} to have the features `image` and `label` (a ClassLabel or "
            f"a sequence of them). Found: {', '.join(members)}."
        )
    # TFDS itself passes over names that cannot be read.
    file = absolute_path(info.data_dir) / "label.labels.txt"
    if not read_path(file, file.is_file):
        return num_classes, None
    names = tuple(filter(None, map(str.strip, read_text(file).split("\n"))))
    if not len(names) == len(set(names)) == num_classes:
        raise ValueError(
            f"Expected {num_classes} names of classes in {file}, each once. Received: "
            f"{len(names)}, of which {len(set(names))} differ. Prepare the data set again."
        )
    return num_classes, names


def _versions(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """Returns the folders of versions that match, the oldest first."""
    found = [
        child
        for child in (folder.iterdir() if folder.is_dir() else ())
        if _VERSION.fullmatch(child.name) and fnmatch.fnmatchcase(child.name, pattern)
    ]
    return sorted(found, key=lambda child: [int(part) for part in child.name.split(".")])
