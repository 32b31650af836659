"""Finds data sets that TFDS has prepared on disk, without importing TensorFlow or TFDS.

TFDS itself looks only for the newest version it knows and starts a download when it is not
there. Reading the folders shows every version that is there, at once.
"""

import fnmatch
import json
import os
import pathlib
from typing import NamedTuple

from training.io.paths import any_path, is_remote, read_path, read_text

# Key of the metadata of a set whose photos are turned as their EXIF orientation says.
UPRIGHT = "upright"
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


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
    """Returns `data_dir` as an absolute path.

    Empty or None is the default of TFDS: `$TFDS_DATA_DIR` or `~/tensorflow_datasets`.

    A remote folder, `gs://bucket/tfds` or `s3://…`, becomes a path object that behaves alike.

    Raises:
        UsageError: as `any_path`.
    """
    data_dir = data_dir or os.environ.get("TFDS_DATA_DIR")
    if not data_dir:
        return pathlib.Path.home() / "tensorflow_datasets"
    folder = any_path(data_dir)
    return folder if is_remote(folder) else folder.absolute()


def find(
    builder: str, version: str = "*", data_dir: str | os.PathLike | None = None
) -> Prepared | None:
    """Returns the newest prepared version of `builder` that matches, or None.

    Args:
        builder: `name` or `name/config`.
        version: such as "3.0.2", "3.*.*" or "*".
        data_dir: folder of prepared data sets; empty or None is the default of TFDS.
    """
    folder = resolve_data_dir(data_dir) / builder
    versions, complete = read_path(folder, lambda: _versions(folder, version))
    if not complete:
        if versions:
            raise NotPreparedError(
                f"{versions[-1]} exists but holds no dataset_info.json, so its preparation was "
                f"interrupted. Delete the folder and prepare {builder} again."
            )
        return None
    return read(complete[-1])


def _versions(folder: pathlib.Path, version: str) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Returns the folders of versions that match, the oldest first, and those that are complete."""
    versions = sorted(
        (
            child
            for child in (folder.iterdir() if folder.is_dir() else ())
            if _version_key(child.name) and fnmatch.fnmatchcase(child.name, version)
        ),
        key=lambda child: _version_key(child.name) or (),
    )
    return versions, [child for child in versions if (child / "dataset_info.json").is_file()]


def configs(builder: str, data_dir: str | os.PathLike | None = None) -> list[str]:
    """Returns the configurations of `builder` that have a folder below `data_dir`."""
    folder = resolve_data_dir(data_dir) / builder
    if not folder.is_dir():
        return []
    return sorted(
        child.name
        for child in folder.iterdir()
        if child.is_dir() and any(_version_key(grandchild.name) for grandchild in child.iterdir())
    )


def read(directory: pathlib.Path) -> Prepared:
    """Reads the description of the data set prepared in `directory` (a version's folder).

    Raises:
        ValueError: if it is damaged.
        OSError: if it cannot be read.
    """
    file = directory / "dataset_info.json"
    try:
        info = json.loads(read_path(file, lambda: file.read_text(encoding="utf-8")))
        return Prepared(
            directory=directory,
            name="/".join(part for part in (info["name"], info.get("configName")) if part),
            version=info["version"],
            file_format=info.get("fileFormat", "tfrecord"),
            sizes={
                split["name"]: sum(int(length) for length in split.get("shardLengths", ()))
                for split in info.get("splits", ())
            },
        )
    except _DAMAGE as error:
        raise ValueError(
            f"Expected the description of a data set. {file} is damaged "
            f"({type(error).__name__}: {error}). Prepare the data set again."
        ) from error


def label_facts(found: Prepared) -> tuple[int, tuple[str, ...] | None]:
    """Returns the number of classes of the feature `label`, and their names if recorded.

    Raises:
        ValueError: if the data set has no images with such labels, or is damaged.
    """
    file = found.directory / "features.json"
    try:
        members = json.loads(read_text(file)).get("featuresDict", {}).get("features", {})
        label = members.get("label", {})
        label = label.get("sequence", {}).get("feature", label)
        num_classes = int(label["classLabel"]["numClasses"]) if "classLabel" in label else 0
    except _DAMAGE as error:
        raise ValueError(
            f"Expected the features of a data set. {file} is damaged ({type(error).__name__}: "
            f"{error}). Prepare the data set again."
        ) from error
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


def _version_key(text: str) -> tuple[int, ...] | None:
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return None
    return tuple(int(part) for part in parts)
