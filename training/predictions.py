"""What a model says of photos: the most probable classes of each, as rows, JSON and a page."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np

from keras_vit.predict import ACTIVATIONS, top_classes
from keras_vit.typing import Tensor
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
    unreadable: Callable[[Exception], None] | None = None,
) -> Iterator[Prediction]:
    """Yields the prediction of each photo, in order.

    Args:
        model: a classifier.
        files: of photos; they are prepared as in the model's evaluation.
        top: how many classes of each.
        class_names: instead of the model's own.
        attention: whether to follow attention, where the model lets.
        unreadable: called with the error of each file that cannot be read, which is left out; None
            raises the first.

    Raises:
        ValueError: if a file cannot be read as an image, or `class_names` are not as many as the
            model's classes.
        OSError: if a file cannot be read.
    """
    require_head(model)
    names = model.class_names if class_names is None else class_names
    low, high = model.image_range
    for start in range(0, len(files), BATCH):
        chosen, images = _read(files[start : start + BATCH], model.preprocess, unreadable)
        if not chosen:
            continue
        probabilities = probabilities_of(model, images, names)
        maps = model.rollout(images) if attention and model.rollout else [None] * len(images)
        pixels = np.rint((images - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
        ranked = top_classes(probabilities, names, top)
        yield from map(Prediction, chosen, ranked, pixels, maps)


def require_head(model: FrozenModel) -> None:
    """Checks that a model is a classifier.

    Raises:
        ValueError: otherwise.
    """
    if model.activation is None:
        raise ValueError(
            f"Expected a model with a head. Received: {model.name}, which gives features. "
            "A model of Keras around one is exported first, by python -m export hub: its module "
            "predicts."
        )


def probabilities_of(
    model: FrozenModel, images: Tensor, class_names: Sequence[str] | None
) -> np.ndarray:
    """Returns (images, classes) float32 in [0, 1].

    Args:
        model: a classifier.
        images: (images, height, width, channels), as the model takes them.
        class_names: of the classes, or None where they are not known.

    Raises:
        ValueError: if `class_names` are not as many as the model's classes.
    """
    activation = ACTIVATIONS[model.activation or "softmax"]
    probabilities = keras.ops.convert_to_numpy(activation(model.logits(images)))
    if class_names is not None and len(class_names) != probabilities.shape[-1]:
        raise ValueError(
            f"Expected a name for each of {probabilities.shape[-1]} classes. "
            f"Received: {len(class_names)} names."
        )
    return probabilities


def _read(files, preprocess, unreadable):
    """Returns the files that can be read, and their images."""
    try:
        return files, read_images(files, preprocess)
    except (ValueError, OSError):
        if unreadable is None:
            raise
    read, images = [], []
    for file in files:
        try:
            images.append(read_images([file], preprocess))
        except (ValueError, OSError) as error:
            unreadable(error)
        else:
            read.append(file)
    return read, np.concatenate(images) if images else None
