"""An export command at work: the model and the images that its options name, reports, messages."""

import argparse
import functools
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from keras_vit.training.data.opened_dataset import open_dataset, open_files, warn_of_trained
from keras_vit.training.data.preprocessing.preprocess import read_images
from keras_vit.training.data.skip_unreadable import SkipCounter
from keras_vit.training.data.tf_data_batches import plain_dataset
from keras_vit.training.errors import UsageError
from keras_vit.training.inference.image_function import KerasFunction
from keras_vit.training.inference.interface import Interface
from keras_vit.training.inference.open_model import load_model
from keras_vit.training.io.atomic import write_text
from keras_vit.training.io.image_listing import list_images, spread
from keras_vit.training.io.paths import read_lines
from keras_vit.training.source_facts import runs_behind
from keras_vit.training.tasks import Task, task_of
from keras_vit.training.tasks.classification.evaluation import class_order

from .errors import ExportError, RuntimeMissing, damage_refused
from .supported_models import portable
from .tflite.quantization import CALIBRATED
from .verification.verify import Report, verify

logger = logging.getLogger("keras_vit")


class Export:
    """The model and data that the options of a command name, loaded when they are asked for."""

    def __init__(self, options: argparse.Namespace):
        self.options = options

    @functools.cached_property
    def source(self) -> KerasFunction:
        """SOURCE, its model in the form that is exported.

        Raises `ExportError` if the model cannot be exported.
        """
        options = self.options
        source = load_model(
            options.source,
            name=options.model,
            num_classes=options.num_classes,
            image_size=options.image_size,
        )
        try:
            return KerasFunction(portable(source.model), source.name, run=source.run)
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
        return self._images(scored=self.options.source)

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

    def _images(self, dataset=None, split=None, scored=""):
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
            source.interface,
            split=split or options.split or run.get("eval_split"),
            data_dir=options.data_dir or source.run.get("data_dir") or None,
            limit=options.count,
            scored=scored,
        )

    def verify(self, artifact: str | os.PathLike, runtime: str | None = None) -> Report:
        """Returns the report of an artifact, on `samples`."""
        return verify(self.source.model, artifact, *self.samples, runtime=runtime)

    def write(self, export: Callable, **arguments: Any) -> int:
        """Exports the model to --output by a function, and shows a report where there are images.

        `export` takes the model, a path and `arguments`, and may return the path that it wrote.
        """
        written = export(self.source.model, self.options.output, **arguments)
        artifact = written or self.options.output
        print(f"wrote {artifact}")
        try:
            _ = self.samples
        except FileNotFoundError as error:
            if self.options.dataset:
                raise
            print(f"not verified: {error}")
            return 0
        try:
            report = self.verify(artifact)
        except RuntimeMissing as error:
            print(f"not verified: {error}")
            return 0
        return self.show(report)

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
    interface: Interface,
    *,
    split: str | None = None,
    data_dir: str | None = None,
    limit: int = 200,
    scored: str | os.PathLike = "",
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns (images, labels) of a data set.

    Args:
        data: a name as `training.data.open` takes it, "digits" or "folder:/data/birds"; a
            directory with image files in and below it, which have no labels; or a .npz file
            with the arrays `images`, (n, height, width, 3) in [0, 1], and, if there are, `labels`.
        interface: of the model: the size of images, the operations that make them of photos, of
            which the last is `value_range(-1,1)`, and the order of classes.
        split: text of the split, for names of data sets; None is "test", or of photos the only one.
        data_dir: folder of TensorFlow Datasets, for names of the registry.
        limit: how many; of a directory, from its first file to its last, evenly apart.
        scored: the source of a model that is scored on them: a warning tells if they trained it.

    Returns:
        images, (n, height, width, 3) float32 in [0, 1], and labels as `verify` takes them, or None
        where there are none, or they are not the model's classes, which a warning says.

    Raises:
        ValueError: if there are no images, or they cannot be used. What cannot be read of a data
            set is left out, and named in a warning.
    """
    preprocess, size = interface.preprocessing, interface.image_size
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
        files = spread(list_images([path]), limit)
        images, opened = read_images(files, preprocess), open_files([str(file) for file in files])
    else:
        whole = open_dataset(str(data), data_dir)
        names = [*whole.spec.sizes] if whole.photos else []
        opened = whole.split(split or (names[0] if len(names) == 1 else "test"))
        operations = opened.preprocess(preprocess).require_range("the preprocessing", opened)
        skipped = SkipCounter(named=True)
        task = task_of({}, interface.classifies)

        def read(task):
            dataset = plain_dataset(opened, operations, task=task, skip_counter=skipped)
            return [*dataset.take(limit)]

        try:
            order = class_order(interface.class_names, opened.dataset.class_names, str(data))
            examples = read(task)
        except UsageError as error:
            logger.warning("No accuracy is computed. %s", error)
            order, examples = None, read(Task())  # of images alone
        if not examples:
            raise ExportError(f"Expected images in {data}. Received: none that can be read.")
        images = np.stack([each["image"] for each in examples])
        if "label" in examples[0]:
            labels = np.stack([each["label"] for each in examples])
            if order and interface.classifies == "pixel":
                labels = np.where(labels < 0, labels, np.array(order)[labels])
            elif order:
                labels = labels[:, np.argsort(order)]
    for run, config in runs_behind(scored):
        warn_of_trained(opened, run, config)
    if images.shape[1:] != (*size, 3):
        raise ExportError(
            f"Expected a preprocessing to images of shape {(*size, 3)}. Received: {preprocess!r}, "
            f"which gives {tuple(images.shape[1:])}"
        )
    return ((np.asarray(images) + 1) / 2).clip(0, 1).astype("float32"), labels
