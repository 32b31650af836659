"""Data sets as TFDS prepares them on disk: found, described and written.

TFDS itself looks only for the newest version it knows and starts a download when it is not
there. Listing the folders shows every version that is there, at once.
"""

import contextlib
import fnmatch
import io
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from keras_vit.hidden_folder import hidden_folder
from keras_vit.training.errors import TrainingError, first_line
from keras_vit.training.io.paths import absolute_path, is_remote, read_path, read_text
from keras_vit.training.io.stores import sent

# Of the sets that are written here.
VERSION = "1.0.0"
# Describes the images of a set whose photos are read so.
UPRIGHT = "turned as its EXIF orientation says"
# Name of a format of files; the other that is read is "tfrecord".
ARRAY_RECORD = "array_record"
_INFO = "dataset_info.json"


class NotPreparedError(FileNotFoundError):
    """The data set is not on disk; the message says how to get it."""


def resolve_data_dir(data_dir: str | os.PathLike | None) -> pathlib.Path:
    """Returns `data_dir` as an absolute path; a store's, such as gs://bucket/tfds, behaves alike.

    Empty or None is the default of TFDS: `$TFDS_DATA_DIR` or `~/tensorflow_datasets`.

    Raises:
        UsageError: as `any_path`.
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
        folder, lambda: {each: (each / _INFO).is_file() for each in _versions(folder, version)}
    )
    if complete and not any(complete.values()):
        raise NotPreparedError(
            f"{[*complete][-1]} exists but holds no {_INFO}, so its preparation was "
            f"interrupted. Delete the folder and prepare {builder} again."
        )
    return next((each for each in reversed(complete) if complete[each]), None)


def read(directory: pathlib.Path) -> Any:
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


def label_facts(info: Any) -> tuple[int, tuple[str, ...] | None]:
    """Returns the number of classes of the feature `label`, and their names if recorded.

    Raises:
        ValueError: if the data set has no images with such labels, or its names are of others.
    """
    members = dict(info.features.items())
    label = members.get("label")
    # Of a sequence of labels, that of one.
    label = getattr(label, "feature", label)
    num_classes = getattr(label, "num_classes", None) or 0
    if "image" not in members or num_classes < 1:
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


def write(
    name: str,
    data_dir: str | os.PathLike | None,
    features: Mapping[str, Any],
    splits: Mapping[str, Iterable[tuple[int, Mapping[str, Any]]]],
    description: str,
    num_shards: int | None = None,
    beam_options: Any = None,
) -> pathlib.Path:
    """Writes a data set, and returns its folder.

    Several processes may call it at once: each writes to a hidden folder of its own, and the first
    to finish moves its result into place.

    Args:
        name, data_dir, description: of the data set.
        features: TFDS's, by name.
        splits: the (key, example) pairs of each split, or Beam's transforms that make them.
        num_shards: files of each split; by default as many as TFDS takes for its size.
        beam_options: of `apache_beam`, whose machines write to `data_dir` themselves.
    """
    import tensorflow_datasets as tfds

    def store(folder):
        config = tfds.download.DownloadConfig(num_shards=num_shards, beam_options=beam_options)
        # TFDS announces a download and its (temporary) folder; here both would mislead.
        tfds.disable_progress_bar()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return tfds.dataset_builders.store_as_tfds_dataset(
                    name=name,
                    version=VERSION,
                    features=tfds.features.FeaturesDict(features),
                    split_datasets=splits,
                    data_dir=str(folder),
                    description=description,
                    download_config=config,
                ).data_dir
        finally:
            tfds.enable_progress_bar()

    folder = resolve_data_dir(data_dir)
    target = folder / name / VERSION
    if beam_options:
        store(folder)
    elif is_remote(folder):
        with sent(target) as local:
            # Hidden files are not sent.
            shutil.move(store(local.with_name(".written")), local)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        with hidden_folder(target) as scratch:
            written = store(scratch)
            try:
                os.rename(written, target)
            except OSError:
                if not (target / _INFO).exists():
                    raise
    return target


def _versions(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """Returns the folders of versions that match, the oldest first."""
    found = [
        child
        for child in (folder.iterdir() if folder.is_dir() else ())
        if re.fullmatch(r"\d+\.\d+\.\d+", child.name) and fnmatch.fnmatchcase(child.name, pattern)
    ]
    return sorted(found, key=lambda child: [int(part) for part in child.name.split(".")])
