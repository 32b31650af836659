"""Prepares data sets: TFDS downloads one, photos become a sharded set, digits are embedded.

A file for each photo suits a disk; a bucket wants few large ones. The photos are written as they
are, byte for byte, and the set is read as `tfds:NAME`.

The digits are scikit-learn's, so that the quickstart needs no network: 1,797 grayscale images of
8×8 pixels, the test part of UCI's optdigits (https://archive.ics.uci.edu/dataset/80).
"""

import contextlib
import io
import os
import pathlib
import re
import shutil
import socket
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.files.hidden_folder import hidden_folder
from keras_vit.name_suggestions import did_you_mean

from ...errors import TrainingError, UsageError
from ...io.paths import is_remote, read_path
from ...io.quiet_start import quiet_start
from ...io.remote_stores import copied
from . import known_datasets, photo_sets, tfds_folder
from .photo_sets import photo_path

# Facts of the sets that are written here.
VERSION = "1.0.0"
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
    row = known_datasets.row(name)
    if row.obtain == "embedded":
        return
    import tensorflow_datasets as tfds

    folder = tfds_folder.resolve_data_dir(data_dir)
    builder_name = name.removeprefix("tfds:") if name.startswith("tfds:") else row.builder
    try:
        builder = tfds.builder(builder_name, data_dir=folder)
    except tfds.core.DatasetNotFoundError as error:
        raise UsageError(
            f"{did_you_mean(builder_name, tfds.list_builders())}Expected a data set of TFDS. "
            f"Received: {name}, no builder of it: prepare your own with `tfds build`."
        ) from error
    if builder.is_prepared():
        return
    manual = pathlib.Path(manual_dir or folder / "downloads" / "manual")
    recipe = f" For {name}: {row.note}." if row.obtain == "manual" else ""
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
        data_dir, num_shards: as in `write`.
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
    there = tfds_folder.find(name, VERSION, folder)
    if there:
        raise UsageError(f"{there} is there already. Name another data set, or delete it.")
    photos = photo_sets.read(source)
    if photos.kind != "label":
        raise UsageError(f"Expected photos with one class each. {source} has {photos.kind}.")
    if spaced := [each for each in photos.class_names if each != each.strip()]:
        raise UsageError(
            "Expected names of classes without spaces around them, which the list of a prepared "
            f"data set drops. Received: {spaced[0]!r} of {source}. Rename it."
        )
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
    write(name, folder, features, examples, text, num_shards, options)
    return f"tfds:{name}:{VERSION}"


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

    folder = tfds_folder.resolve_data_dir(data_dir)
    target = folder / name / VERSION
    if beam_options:
        store(folder)
    elif is_remote(folder):
        with copied(target, "write") as local:
            # Hidden files are not sent.
            shutil.move(store(local.with_name(".written")), local)
    else:
        with hidden_folder(target) as scratch:
            written = store(scratch)
            try:
                os.rename(written, target)
            except OSError:
                if not (target / tfds_folder.INFO).exists():
                    raise
    return target


def prepare_embedded(name: str, data_dir: str | os.PathLike | None) -> pathlib.Path:
    """Writes a data set of scikit-learn's digits unless it is there, and returns its folder.

    "sklearn_digits" are PNG images of uint8 in 0..255 and ten classes, of which 359 images test,
    each class in proportion.

    "digit_canvases" are PNG images of 36 x 36 pixels, and masks: a digit from 0 to 4 whose pixels
    are squares of 4, at one of four places, all of which train. Masks are uint8: 0 is the
    background, and 1 to 5 the strokes of a digit, where it is brighter than a quarter.
    """
    target = tfds_folder.resolve_data_dir(data_dir) / name / VERSION
    if read_path(target, (target / tfds_folder.INFO).exists):
        return target
    with quiet_start():
        from sklearn.datasets import load_digits

        digits = load_digits()
        # Values are 0..16 inclusive, so a factor of 16 would overflow uint8.
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
        test = _stratified(digits.target, 359)
        train = np.setdiff1d(np.arange(len(images)), test)
        return write(name, data_dir, *_EMBEDDED[name](images, digits.target, train, test))


def _digits(images, labels, train, test):
    import tensorflow_datasets as tfds

    image = tfds.features.Image(shape=(8, 8, 1))
    features = {"image": image, "label": tfds.features.ClassLabel(num_classes=10)}

    def of(index):
        return int(index), {"image": images[index], "label": int(labels[index])}

    examples = {"train": map(of, train), "test": map(of, test)}
    return features, examples, "Handwritten digits of 8x8 pixels from scikit-learn."


def _canvases(images, labels, train, test):
    import tensorflow_datasets as tfds

    shape, places = (36, 36, 1), [(0, 0), (0, 1), (1, 0), (1, 1)]
    features = {name: tfds.features.Image(shape=shape) for name in ("image", "segmentation_mask")}
    train, test = ([number for number in each if labels[number] < 5] for each in (train, test))
    indices = {
        "train": [(number, place) for number in train for place in range(4)],
        "test": [(number, number % 4) for number in test],
    }

    def of(one):
        number, (top, left) = one[0], places[one[1]]
        canvas = np.zeros((9, 9, 1), np.uint8)
        canvas[top : top + 8, left : left + 8] = images[number]
        mask = np.where(canvas >= 64, labels[number] + 1, 0).astype(np.uint8)
        large = [each.repeat(4, axis=0).repeat(4, axis=1) for each in (canvas, mask)]
        found = dict(zip(("image", "segmentation_mask"), large, strict=True))
        return f"{number}_{one[1]}", found

    examples = {split: map(of, each) for split, each in indices.items()}
    return features, examples, "Digits of scikit-learn on canvases of 36x36 pixels, with masks."


_EMBEDDED = {"sklearn_digits": _digits, "digit_canvases": _canvases}


def _stratified(labels, count):
    """Returns `count` sorted indices, each class in proportion (largest remainders first)."""
    rng = np.random.default_rng(0)
    classes, counts = np.unique(labels, return_counts=True)
    exact = counts * count / len(labels)
    take = np.floor(exact).astype(int)
    take[np.argsort(take - exact, kind="stable")[: count - take.sum()]] += 1
    chosen = [
        rng.permutation(np.flatnonzero(labels == label))[:share]
        for label, share in zip(classes, take, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


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
