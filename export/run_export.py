"""An export command at work: the model and the images that its options name, reports, messages."""

import argparse
import functools
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from keras_vit.training.inference.keras_function import KerasFunction
from keras_vit.training.inference.open_model import load_model
from keras_vit.training.io.atomic import write_text
from keras_vit.training.io.paths import read_lines

from .errors import ExportError, RuntimeMissing
from .images import load_images
from .supported_models import portable
from .tflite.quantization import CALIBRATED
from .verification.verify import Report, verify


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
