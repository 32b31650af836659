"""The steps that several commands take: the model, the images, verifying what was written."""

import argparse
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from export.errors import ExportError
from export.model_around import model_around
from export.portable_model import MODELS, image_size, portable
from export.sample_images import load_images
from export.verification.report import Report
from export.verification.verify import verify
from training.evaluators.model_source import SourceModel, load_model
from training.io.atomic import write_text
from training.io.paths import read_lines


def load_source(options: argparse.Namespace) -> SourceModel:
    """Returns the model that the options of `add_model` name.

    Raises:
        ExportError: if it is not of this package.
    """
    source = load_model(
        options.source,
        name=options.model,
        num_classes=options.num_classes,
        image_size=options.image_size,
    )
    if not (isinstance(source.model, MODELS) or model_around(source.model, portable)):
        kind = type(source.model).__name__
        raise ExportError(f"Expected a model of keras_vit. Received: {source.name}, a {kind}.")
    return source


def class_names(options: argparse.Namespace, source: SourceModel) -> list[str] | None:
    """Returns the class names of --labels, or else of the run."""
    return read_lines(options.labels) if options.labels else source.class_names


def images(
    options: argparse.Namespace,
    source: SourceModel,
    *,
    dataset: str | None = None,
    split: str | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns (images, labels) of --dataset, or of the data set that the run was evaluated on.

    Args:
        options: of `add_images`.
        source: the model.
        dataset: instead of --dataset.
        split: instead of --split.
    """
    dataset = dataset or options.dataset
    run: Mapping[str, Any] = {} if dataset else source.run
    dataset = dataset or run.get("dataset")
    if not dataset:
        raise ExportError(
            "Expected images to verify with: --dataset=NAME, --dataset=folder:PATH, a directory "
            "of image files or a .npz file. Only a run directory knows its own."
        )
    return load_images(
        dataset,
        image_size(source.model),
        split=split or options.split or run.get("eval_split") or "test",
        data_dir=options.data_dir or source.run.get("data_dir") or None,
        preprocess=source.preprocess,
        limit=options.count,
    )


def calibration(options: argparse.Namespace, source: SourceModel) -> np.ndarray:
    """Returns images to determine ranges with: training images, so that the test stays unseen."""
    split = source.run.get("train_split")
    if options.calibration or options.dataset or not split:
        return images(options, source, dataset=options.calibration)[0]
    return images(options, source, split=split)[0]


def verify_written(
    options: argparse.Namespace,
    source: SourceModel,
    artifact: str | os.PathLike,
    samples: tuple[np.ndarray, np.ndarray | None] | None = None,
) -> int:
    """Says that an artifact was written, and verifies it where there are images.

    Args:
        options: of `add_images`.
        source: the model.
        artifact: what was written.
        samples: what `images` returned, where it was asked before.
    """
    print(f"wrote {artifact}")
    reason = "no images"
    if samples is None and (options.dataset or source.run.get("dataset")):
        try:
            samples = images(options, source)
        except FileNotFoundError as error:
            if options.dataset:
                raise
            reason = f"the run's images are gone ({error})"
    if samples is not None:
        return show(options, verify(source.model, artifact, *samples))
    print(
        f"not verified: {reason}. Do it with: python -m export verify {artifact} "
        f"--against={options.source} --dataset=…"
    )
    return 0


def show(options: argparse.Namespace, report: Report) -> int:
    """Prints a report, writes it to --json, and returns 1 if a threshold was missed."""
    print(report)
    write_json(options.json, report.to_dict())
    return 0 if report.ok else 1


def write_json(file: pathlib.Path | None, content: Any) -> None:
    """Writes values as JSON, if there is a file to write to."""
    if file:
        write_text(file, json.dumps(content, indent=2) + "\n")
