"""The model and the images that the options of a command name."""

import argparse
import dataclasses
import functools
import json
import logging
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_vit.training.data import open_dataset
from keras_vit.training.data.preprocessing.preprocess import read_images
from keras_vit.training.data.tf_data_batches import plain_dataset
from keras_vit.training.data.unreadable_examples import SkipCounter
from keras_vit.training.errors import UsageError
from keras_vit.training.evaluators.classification import class_order
from keras_vit.training.evaluators.load_keras_model import SourceModel, load_model, resizing
from keras_vit.training.io.atomic import write_text
from keras_vit.training.io.image_listing import list_images, spread
from keras_vit.training.io.paths import read_lines

from .errors import ExportError, damage_refused
from .supported_models import portable
from .tflite.quantization import CALIBRATED
from .verification.verify_and_thresholds import Report, verify

logger = logging.getLogger("keras_vit")


class Export:
    """The model and data that the options of a command name, loaded when they are asked for."""

    def __init__(self, options: argparse.Namespace):
        self.options = options

    @functools.cached_property
    def source(self) -> SourceModel:
        """SOURCE, its model in the form that is exported.

        Raises:
            ExportError: if the model cannot be exported.
        """
        options = self.options
        source = load_model(
            options.source,
            name=options.model,
            num_classes=options.num_classes,
            image_size=options.image_size,
        )
        try:
            return dataclasses.replace(source, model=portable(source.model))
        except ExportError as error:
            raise ExportError(f"{source.name} cannot be exported. {error}") from error

    @property
    def labels(self) -> list[str] | None:
        """The class names of --labels; None is the model's own. A representation has none."""
        of_features = getattr(self.options, "module_output", None) == "representation"
        named = self.options.labels
        return read_lines(named) if named and not of_features else None

    @functools.cached_property
    def samples(self) -> tuple[np.ndarray, np.ndarray | None]:
        """(images, labels) of --dataset, or of the data set that the run was evaluated on."""
        return self._images()

    def calibration(self, quantizations: Iterable[str]) -> np.ndarray | None:
        """Returns images to determine ranges with: the run's training images, if it has any.

        None where no quantization needs them.
        """
        if CALIBRATED.isdisjoint(quantizations):
            if self.options.calibration:
                expected = f"--quantization of {', '.join(sorted(CALIBRATED))}"
                raise ExportError(f"Expected {expected} with --calibration.")
            return None
        split = self.source.run.get("train_split")
        if self.options.calibration or self.options.dataset or not split:
            return self._images(dataset=self.options.calibration)[0]
        return self._images(split=split)[0]

    def _images(self, dataset=None, split=None):
        """Loads images of `dataset` or --dataset, and `split` or --split."""
        options, source = self.options, self.source
        dataset = dataset or options.dataset
        run = {} if dataset else source.run
        if not (dataset := dataset or run.get("dataset")):
            raise FileNotFoundError(
                "Expected images to verify or calibrate with: --dataset=NAME or folder:PATH with "
                "--split, a directory of image files or a .npz file. Only a run knows its own."
            )
        return load_images(
            dataset,
            source.image_size,
            split=split or options.split or run.get("eval_split"),
            data_dir=options.data_dir or source.run.get("data_dir") or None,
            preprocess=source.preprocess,
            limit=options.count,
            class_names=source.class_names,
        )

    def verify(self, artifact: str | os.PathLike, runtime: str | None = None) -> Report:
        """Returns the report of an artifact, on `samples`."""
        return verify(self.source.model, artifact, *self.samples, runtime=runtime)

    def verify_written(self, artifact: str | os.PathLike) -> int:
        """Says that an artifact was written, and shows its report where there are images."""
        print(f"wrote {artifact}")
        try:
            _ = self.samples
        except FileNotFoundError as error:
            if self.options.dataset:
                raise
            print(f"not verified: {error}")
            return 0
        return self.show(self.verify(artifact))

    def show(self, report: Report) -> int:
        """Prints a report, writes it to --json, and returns 1 if a threshold was missed."""
        print(report)
        self.write_json(report.to_dict())
        return 0 if report.ok else 1

    def write_json(self, content: Any) -> None:
        """Writes values to --json, if it is given."""
        if self.options.json:
            write_text(self.options.json, json.dumps(content, indent=2) + "\n")


def load_images(
    data: str | os.PathLike,
    size: tuple[int, int],
    *,
    split: str | None = None,
    data_dir: str | None = None,
    preprocess: str | None = None,
    limit: int = 200,
    class_names: Sequence[str] | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns (images, labels) of a data set.

    Args:
        data: a name as `training.data.open` takes it, "digits" or "folder:/data/birds"; a
            directory with image files in and below it, which have no labels; or a .npz file
            with the arrays `images`, (n, height, width, 3) in [0, 1], and, if there are, `labels`.
        size: (height, width) in pixels.
        split: text of the split, for names of data sets; None is "test", or of photos the only one.
        data_dir: folder of TensorFlow Datasets, for names of the registry.
        preprocess: operations as in `training.data.preprocessing`, whose last is
            `value_range(-1,1)`, for all but a .npz file; None resizes.
        limit: how many; of a directory, from its first file to its last, evenly apart.
        class_names: of the model, in whose order the labels are given.

    Returns:
        images, (n, height, width, 3) float32 in [0, 1], and labels as `verify` takes them, or None
        where there are none, or they are of other classes than the model's, which a warning says.

    Raises:
        ValueError: if there are no images, or they cannot be used. What cannot be read of a data
            set is left out, and named in a warning.
    """
    preprocess = preprocess or resizing(size)
    path, labels = pathlib.Path(str(data)), None
    if path.suffix == ".npz" and path.exists():
        expected = "Expected a .npz file with the array `images`"
        with (
            damage_refused(f"{expected}. {path} cannot be read", "Write it with numpy.savez."),
            np.load(path, allow_pickle=False) as arrays,
        ):
            labels = arrays["labels"][:limit] if "labels" in arrays else None
            return np.asarray(arrays["images"][:limit], "float32"), labels
    if path.is_dir():
        images = read_images(spread(list_images([path]), limit), preprocess)
    else:
        whole = open_dataset(str(data), data_dir)
        names = [*whole.spec.sizes] if whole.photos else []
        opened = whole.split(split or (names[0] if len(names) == 1 else "test"))
        operations = opened.preprocess(preprocess).require_range("the preprocessing", opened)
        skipped = SkipCounter(named=True)
        dataset = plain_dataset(opened, operations, one_hot=True, skip_counter=skipped)
        examples = [*dataset.take(limit)]
        if not examples:
            raise ExportError(f"Expected images in {data}. Received: none that can be read.")
        images = np.stack([each["image"] for each in examples])
        labels = np.stack([each["label"] for each in examples])
        try:
            order = class_order(class_names, opened.dataset.class_names, str(data))
        except UsageError as error:
            logger.warning("No accuracy is computed. %s", error)
            labels = None
        else:
            if order:
                labels = labels[:, np.argsort(order)]
    if images.shape[1:] != (*size, 3):
        raise ExportError(
            f"Expected a preprocessing to images of shape {(*size, 3)}. Received: {preprocess!r}, "
            f"which gives {tuple(images.shape[1:])}"
        )
    return ((np.asarray(images) + 1) / 2).clip(0, 1).astype("float32"), labels
