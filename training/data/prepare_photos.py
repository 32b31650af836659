"""Turns a folder of photos, or a table of paths and labels, into a sharded set of TFRecord files.

A file for each photo suits a disk; a bucket wants few large ones. The photos are written as they
are, byte for byte, and the set is read as `tfds:NAME`.
"""

import csv
import functools
import io
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

from training.data import image_folder, tfds_folder
from training.data.beam_options import pipeline_options
from training.data.image_folder import ImageFolder
from training.errors import UsageError
from training.io.paths import any_path, is_remote, read_text

VERSION = "1.0.0"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def prepare_photos(
    source: str,
    name: str,
    data_dir: str | os.PathLike | None = None,
    num_shards: int | None = None,
    beam_options: Sequence[str] = (),
) -> str:
    """Writes a data set of photos, and returns the name that it is read by.

    Args:
        source: `folder:/path` with a sub-folder for each class, or `csv:/file.csv` with the columns
            `path` (relative to the file, or in a store), `label` and, if there are several splits,
            `split`. Both may be in a store.
        name: of the data set, in lower case.
        data_dir: folder of prepared data sets; empty or None is the default of TFDS.
        num_shards: files of each split; by default as many as TFDS takes for its size.
        beam_options: flags of Apache Beam, such as "--runner=DataflowRunner", to write on many
            machines, which have this package and see the photos and `data_dir` under the same
            paths; empty writes on this one.

    Raises:
        UsageError: for a name that cannot be one, or one that is there, or a store that refuses, or
            `beam_options` without Apache Beam.
        TrainingError: for a store that fails.
        ValueError, OSError: if the source cannot be read.
    """
    import tensorflow_datasets as tfds

    if not _NAME.fullmatch(name):
        raise UsageError(
            f"Expected a name of small letters, digits and underscores. Received: {name!r}."
        )
    folder = tfds_folder.resolve_data_dir(data_dir)
    if tfds_folder.find(name, VERSION, folder):
        raise UsageError(
            f"{folder / name / VERSION} is there already. Name another data set, or delete it."
        )
    photos = (
        read_table(source.removeprefix("csv:"))
        if source.startswith("csv:")
        else image_folder.scan(source.removeprefix("folder:"))
    )
    options = pipeline_options(beam_options)
    tfds.disable_progress_bar()
    # Other machines do not see a folder of this one.
    if is_remote(folder) and not options:
        # Slow to import, and what most commands never need.
        from training.io.stores import sent

        with tempfile.TemporaryDirectory() as scratch, sent(folder / name / VERSION) as target:
            shutil.move(_write(photos, name, scratch, num_shards, options), target)
    else:
        _write(photos, name, str(folder), num_shards, options)
    return f"tfds:{name}:{VERSION}"


def read_table(file: str | os.PathLike) -> ImageFolder:
    """Reads a table of photos.

    Args:
        file: CSV with the columns `path`, `label` and perhaps `split`; a label is a name.

    Raises:
        UsageError: if columns or rows are missing, or a file is not there.
    """
    file = any_path(file)
    splits: dict[str, list[tuple[str, str]]] = {}
    with io.StringIO(read_text(file), newline="") as stream:
        reader = csv.DictReader(stream)
        missing = {"path", "label"} - set(reader.fieldnames or ())
        if missing:
            raise UsageError(
                f"Expected the columns path and label, and perhaps split. {file} has no "
                f"{' and no '.join(sorted(missing))}."
            )
        for row in reader:
            if not (row["path"] and row["label"] and _photo(file.parent, row["path"]).is_file()):
                raise UsageError(
                    f"Expected the path of a photo and its label. Line {reader.line_num} of "
                    f"{file} has {row['path']!r} and {row['label']!r}."
                )
            splits.setdefault(row.get("split") or "train", []).append((row["path"], row["label"]))
    if not splits:
        raise UsageError(f"Expected rows of photos. {file} has none.")
    names = tuple(sorted({label for rows in splits.values() for _, label in rows}))
    numbers = {label: number for number, label in enumerate(names)}
    return ImageFolder(
        file.parent,
        names,
        {split: [(path, numbers[label]) for path, label in rows] for split, rows in splits.items()},
    )


def _photo(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the path of a photo in `folder`, unless its name is an address in a store."""
    return any_path(name) if is_remote(name) else folder / name


def _example(
    folder: pathlib.Path, numbered: tuple[int, tuple[str, int]]
) -> tuple[int, dict[str, Any]]:
    """Returns the key and the features of a photo, from its number, path and label."""
    number, (path, label) = numbered
    return number, {"image": str(_photo(folder, path)), "label": label}


def _write(
    photos: ImageFolder, name: str, data_dir: str, num_shards: int | None, beam_options: Any
) -> str:
    """Writes the data set and returns its folder."""
    import tensorflow_datasets as tfds

    with tfds.core.registered.skip_registration():

        class Photos(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version(VERSION)

            def _info(self):
                return tfds.core.DatasetInfo(
                    builder=self,
                    description=f"Photos of {photos.root}.",
                    features=tfds.features.FeaturesDict(
                        {
                            "image": tfds.features.Image(),
                            "label": tfds.features.ClassLabel(names=list(photos.class_names)),
                        }
                    ),
                    metadata=tfds.core.MetadataDict({tfds_folder.UPRIGHT: True}),
                )

            def _split_generators(self, dl_manager):
                return {
                    split: self._generate_examples(rows) for split, rows in photos.splits.items()
                }

            def _generate_examples(self, rows):
                example = functools.partial(_example, photos.root)
                if not beam_options:
                    return map(example, enumerate(rows))
                import apache_beam as beam

                return beam.Create(list(enumerate(rows))) | beam.Map(example)

    Photos.name = name
    builder = Photos(data_dir=data_dir)
    config = tfds.download.DownloadConfig(num_shards=num_shards, beam_options=beam_options)
    builder.download_and_prepare(download_config=config)
    return str(builder.data_dir)
