"""Prepares data sets: TFDS downloads one, or one's own photos become a sharded set.

A file for each photo suits a disk; a bucket wants few large ones. The photos are written as they
are, byte for byte, and the set is read as `tfds:NAME`.
"""

import os
import pathlib
import re
import socket
import urllib.parse
from collections.abc import Sequence
from typing import Any

from keras_vit.training.data import dataset_table, photo_sets, tfds_folder
from keras_vit.training.data.photo_sets import photo_path
from keras_vit.training.errors import TrainingError, UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def prepare(
    name: str,
    data_dir: str | None = None,
    manual_dir: str | None = None,
    beam_options: Sequence[str] = (),
) -> None:
    """Downloads and writes a data set unless it is there or needs no preparation.

    Args:
        name, data_dir: as in `training.data.open`.
        manual_dir: folder of files got by hand; by default `downloads/manual` in `data_dir`.
        beam_options: flags of Apache Beam, such as "--runner=DataflowRunner", for sets that TFDS
            writes on many machines; empty runs on this one.

    Raises:
        UsageError: for `beam_options` without Apache Beam.
        ValueError: for an unknown name.
        TrainingError: if a server cannot be reached, or files to be got by hand are missing.
    """
    options = _beam_options(beam_options)
    if name.startswith("folder:"):
        return
    row = None if name.startswith("tfds:") else dataset_table.row(name)
    if row and row.obtain == "embedded":
        return
    import tensorflow_datasets as tfds

    builder_name = row.builder if row else name.removeprefix("tfds:")
    folder = tfds_folder.resolve_data_dir(data_dir)
    builder = tfds.builder(builder_name, data_dir=folder)
    if builder.is_prepared():
        return
    manual = pathlib.Path(manual_dir or folder / "downloads" / "manual")
    recipe = f" For {name}: {row.note}." if row and row.obtain == "manual" else ""
    unreachable = _unreachable_hosts(builder, manual)
    if unreachable:
        raise TrainingError(
            f"{', '.join(unreachable)} cannot be reached, so {builder_name} cannot be "
            f"downloaded. Check the network, or put its files into {manual} by hand." + recipe
        )
    config = tfds.download.DownloadConfig(manual_dir=manual_dir or None, beam_options=options)
    try:
        builder.download_and_prepare(download_config=config)
    except AssertionError as error:
        # TFDS asserts that the files got by hand are there.
        raise TrainingError(f"{error}{recipe}") from error


def _unreachable_hosts(builder: Any, manual: pathlib.Path) -> list[str]:
    """Returns the hosts of files that have no address here: TFDS would retry for minutes."""
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "http_proxy")):
        return []
    at_hand = {file.name for file in manual.iterdir()} if manual.is_dir() else set()
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS and at_hand:
        # Some need only one of their archives; TFDS itself fails at once if none will do.
        return []
    infos = builder.url_infos or {}
    missing = [url for url, info in infos.items() if info.filename not in at_hand]
    unreachable = []
    for host in sorted(filter(None, {urllib.parse.urlsplit(url).hostname for url in missing})):
        try:
            socket.getaddrinfo(host, 443)
        except OSError:
            unreachable.append(host)
    return unreachable


def prepare_photos(
    source: str,
    name: str,
    data_dir: str | os.PathLike | None = None,
    num_shards: int | None = None,
    beam_options: Sequence[str] = (),
) -> str:
    """Writes a data set of photos, and returns the name that it is read by.

    Args:
        source: `folder:/path`, `/path` or `csv:/file.csv`, see `photo_sets`; it may be in a store.
        name: of the data set, in lower case.
        data_dir, num_shards: as in `tfds_folder.write`.
        beam_options: as in `prepare`; the machines have this package and see the photos and
            `data_dir` under the same paths.

    Raises:
        UsageError: for a name that cannot be one, or one that is there, or `beam_options` without
            Apache Beam.
        ValueError, OSError: if the source cannot be read.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"Expected a name of small letters, digits and underscores. Received: {name!r}."
        )
    folder = tfds_folder.resolve_data_dir(data_dir)
    there = tfds_folder.find(name, tfds_folder.VERSION, folder)
    if there:
        raise UsageError(f"{there} is there already. Name another data set, or delete it.")
    photos = photo_sets.read(source)
    options = _beam_options(beam_options)

    import tensorflow_datasets as tfds

    features = {
        "image": tfds.features.Image(doc=tfds_folder.UPRIGHT),
        "label": tfds.features.ClassLabel(names=list(photos.class_names)),
    }

    def pairs(rows):
        for number, photo in enumerate(rows):
            path = photo_path(photos.root, photo.path)
            yield number, {"image": str(path), "label": photo.label}

    examples: dict[str, Any] = {split: pairs(rows) for split, rows in photos.splits.items()}
    if options:
        import apache_beam as beam

        examples = {split: beam.Create(each) for split, each in examples.items()}
    text = f"Photos of {photos.root}."
    tfds_folder.write(name, folder, features, examples, text, num_shards, options)
    return f"tfds:{name}:{tfds_folder.VERSION}"


def _beam_options(flags: Sequence[str]) -> Any:
    """Returns Beam's options of flags such as "--runner=DataflowRunner"; None without flags."""
    if not flags:
        return None
    try:
        from apache_beam.options import pipeline_options as options
    except ModuleNotFoundError as error:
        raise UsageError(
            "--beam needs Apache Beam, which is not installed: pip install apache-beam"
        ) from error
    return options.PipelineOptions(flags=list(flags))
