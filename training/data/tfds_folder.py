"""Finds data sets that TFDS has prepared on disk, without importing TensorFlow or TFDS.

TFDS itself looks only for the newest version it knows and starts a download when it is not
there. Reading the folders shows every version that is there, at once.
"""

import contextlib
import fnmatch
import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from keras_vit.training.io.paths import absolute_path, read_path, read_text

# Key of the metadata of a set whose photos are turned as their EXIF orientation says.
UPRIGHT = "upright"
# Name of a format of files; the other that is read is "tfrecord".
ARRAY_RECORD = "array_record"
_INFO = "dataset_info.json"


class NotPreparedError(FileNotFoundError):
    """The data set is not on disk; the message says how to get it."""


class Prepared(NamedTuple):
    """A prepared data set: its folder and what its own description says of it."""

    directory: pathlib.Path
    name: str
    version: str
    file_format: str
    sizes: dict[str, int]


def resolve_data_dir(data_dir: str | os.PathLike | None) -> pathlib.Path:
    """Returns `data_dir` as an absolute path; a store's, such as gs://bucket/tfds, behaves alike.

    Empty or None is the default of TFDS: `$TFDS_DATA_DIR` or `~/tensorflow_datasets`.

    Raises:
        UsageError: as `any_path`.
    """
    return absolute_path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def find(
    builder: str, version: str = "*", data_dir: str | os.PathLike | None = None
) -> Prepared | None:
    """Returns the newest prepared version of `builder` that matches, or None.

    Args:
        builder: `name` or `name/config`.
        version: such as "3.0.2", "3.*.*" or "*".
        data_dir: as in `resolve_data_dir`.

    Raises:
        NotPreparedError: if its preparation was interrupted.
        ValueError, OSError: as `read`.
    """
    folder = resolve_data_dir(data_dir) / builder
    complete = read_path(
        folder, lambda: {each: (each / _INFO).is_file() for each in _versions(folder, version)}
    )
    if complete and not any(complete.values()):
        raise NotPreparedError(
            f"{[*complete][-1]} exists but holds no {_INFO}, so its preparation was "
            f"interrupted. Delete the folder and prepare {builder} again."
        )
    return next((read(child) for child in reversed(complete) if complete[child]), None)


def configs(builder: str, data_dir: str | os.PathLike | None = None) -> list[str]:
    """Returns the configurations of `builder` that have a folder below `data_dir`."""
    folder = resolve_data_dir(data_dir) / builder
    return sorted(child.name for child in _children(folder) if _versions(child))


def read(directory: pathlib.Path) -> Prepared:
    """Reads the description of the data set prepared in `directory` (a version's folder).

    Raises:
        ValueError: if it is damaged, or of another format.
        OSError: if it cannot be read.
    """
    with _parsed(directory / _INFO, "description") as info:
        found = Prepared(
            directory=directory,
            name="/".join(part for part in (info["name"], info.get("configName")) if part),
            version=info["version"],
            file_format=info.get("fileFormat", "tfrecord"),
            sizes={
                split["name"]: sum(map(int, split.get("shardLengths", ())))
                for split in info.get("splits", ())
            },
        )
    if found.file_format not in ("tfrecord", ARRAY_RECORD):
        raise ValueError(
            f"Expected TFRecord or ArrayRecord files. {directory} holds {found.file_format}: "
            "prepare the data set again with file_format='tfrecord'."
        )
    return found


def label_facts(found: Prepared) -> tuple[int, tuple[str, ...] | None]:
    """Returns the number of classes of the feature `label`, and their names if recorded.

    Raises:
        ValueError: if the data set has no images with such labels, or is damaged.
    """
    with _parsed(found.directory / "features.json", "features") as features:
        members = features.get("featuresDict", {}).get("features", {})
        label = members.get("label", {})
        label = label.get("sequence", {}).get("feature", label)
        num_classes = int(label["classLabel"]["numClasses"]) if "classLabel" in label else 0
    if "image" not in members or num_classes < 1:
        raise ValueError(
            f"Expected {found.name} to have the features `image` and `label` (a ClassLabel or a "
            f"sequence of them). Found: {', '.join(members)}."
        )
    names = found.directory / "label.labels.txt"
    if not read_path(names, names.is_file):
        return num_classes, None
    return num_classes, tuple(read_text(names).splitlines())


def holds_photos(directory: pathlib.Path) -> bool:
    """Whether `training.data.prepare` wrote the data set prepared in `directory`."""
    file = directory / "metadata.json"
    return read_path(file, file.is_file) and UPRIGHT in json.loads(read_text(file))


@contextlib.contextmanager
def _parsed(file: pathlib.Path, what: str) -> Iterator[Any]:
    """Yields the JSON of a file; raises `ValueError` if the code within does not understand it."""
    try:
        yield json.loads(read_text(file))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"Expected the {what} of a data set. {file} is damaged ({type(error).__name__}: "
            f"{error}). Prepare the data set again."
        ) from error


def _children(folder: pathlib.Path) -> list[pathlib.Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _versions(folder: pathlib.Path, pattern: str = "*") -> list[pathlib.Path]:
    """Returns the folders of versions that match, the oldest first."""
    found = [
        child
        for child in _children(folder)
        if re.fullmatch(r"\d+\.\d+\.\d+", child.name) and fnmatch.fnmatchcase(child.name, pattern)
    ]
    return sorted(found, key=lambda child: [int(part) for part in child.name.split(".")])
