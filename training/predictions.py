"""What a model says of photos: the most probable classes of each, as rows, JSON and a page."""

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from keras_vit.predict import ACTIVATIONS, top_classes
from training.evaluators.frozen_model import FrozenModel
from training.io.image_files import read_images

BATCH = 16


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a model says of one photo.

    Attributes:
        file: of the photo.
        classes: (name, probability) of the most probable ones, the best first.
        image: (height, width, 3) uint8, as the model saw it.
        attention: (rows, columns) in [0, 1], where the model looked, or None.
    """

    file: pathlib.Path
    classes: list[tuple[str, float]]
    image: np.ndarray
    attention: np.ndarray | None = None

    @property
    def name(self) -> str:
        """The file as texts can have it: bytes of its name that are not UTF-8 are escaped."""
        return os.fsencode(self.file).decode(errors="backslashreplace")


def predict_files(
    model: FrozenModel,
    files: Sequence[pathlib.Path],
    *,
    top: int = 5,
    class_names: Sequence[str] | None = None,
    attention: bool = False,
) -> Iterator[Prediction]:
    """Yields the prediction of each photo, in order.

    Args:
        model: a classifier.
        files: of photos; they are prepared as in the model's evaluation.
        top: how many classes of each.
        class_names: instead of the model's own.
        attention: whether to follow attention, where the model lets.

    Raises:
        ValueError: if a file cannot be read as an image, or `class_names` are not as many as the
            model's classes.
    """
    if model.activation is None:
        raise ValueError(
            f"Expected a model with a head. Received: {model.name}, which gives features. "
            "A model of Keras around one is exported first, by python -m export hub: its module "
            "predicts."
        )
    names = model.class_names if class_names is None else class_names
    low, high = model.image_range
    for start in range(0, len(files), BATCH):
        chosen = files[start : start + BATCH]
        images = read_images(chosen, model.preprocess)
        logits = model.logits(images)
        probabilities = keras.ops.convert_to_numpy(ACTIVATIONS[model.activation](logits))
        if names is not None and len(names) != probabilities.shape[-1]:
            raise ValueError(
                f"Expected a name for each of {probabilities.shape[-1]} classes. "
                f"Received: {len(names)} names."
            )
        maps = model.rollout(images) if attention and model.rollout else [None] * len(images)
        pixels = np.rint((images - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
        ranked = top_classes(probabilities, names, top)
        yield from map(Prediction, chosen, ranked, pixels, maps)
