"""Writes class names and the preparation of images into exported models, as text."""

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping, Set
from typing import Any

import keras
import numpy as np

from keras_vit.models.image_model import ACTIVATIONS
from keras_vit.photos.imagenet_classes import require_class_name
from keras_vit.photos.prepare_photos import maps_to_model_range, prepare_photo
from keras_vit.training.evaluators.exported_files import INTERFACE_FILE, LABELS_FILE
from keras_vit.training.evaluators.load_keras_model import resizing
from keras_vit.unknown_names import require_one_of

from .supported_models import image_size

_MODEL_RANGE, _EXPORTED_RANGE = "value_range(-1,1)", "value_range(0,1)"
logger = logging.getLogger("keras_vit")


def exported_texts(
    model: keras.Model, labels: Iterable[str] | None, activation: str, output: str
) -> dict[str, str]:
    """Returns {file name: text} of `interface.json` and, where labels are known, `labels.txt`.

    The keys of `interface.json`: `image_size`, [height, width] in pixels; `image_range`, [0, 1],
    of RGB; `preprocessing`, the operations that make such an image of a photo (docs/data.md);
    `activation`, from logits to probabilities, "none" where the output is probabilities, null
    without a head; `activation_inside`, which gave those. `labels.txt` has a class name a line.

    Args:
        model: of this package.
        labels: as `labels_of_model` takes them.
        activation: "softmax" or "sigmoid".
        output: "logits", "probabilities" or "representation".

    Raises:
        ValueError: if the activation is another, or the labels do not fit, or what prepares
            photos makes images of another size.
    """
    _require_size(model)
    labels = labels_of_model(labels, model, output)
    require_one_of("activation", activation, ACTIVATIONS)
    if model.preprocessing and not _known_operations(model):
        logger.warning(
            "%s prepares photos by %r, which does not end with value_range(-1, 1): what is "
            "exported resizes them instead.",
            *(model.name, model.preprocessing),
        )
    interface = interface_of_model(model, activation, output)
    texts = {INTERFACE_FILE: json.dumps(interface, indent=2) + "\n"}
    if labels is not None:
        texts[LABELS_FILE] = "".join(f"{label}\n" for label in labels)
    return texts


def interface_of_model(model: keras.Model, activation: str | None, output: str) -> dict[str, Any]:
    """Returns the content of `interface.json`; arguments as for `exported_texts`."""
    interface = {
        "image_size": list(image_size(model)),
        "image_range": [0, 1],
        "preprocessing": exported_operations(model),
        "activation": {"logits": activation, "probabilities": "none"}.get(output),
    }
    inside = {"activation_inside": activation} if output == "probabilities" else {}
    return interface | inside


def _require_size(model):
    """Raises ValueError if the model's preparation of photos makes images of another size."""
    operations = model_operations(model)
    try:
        made = prepare_photo(np.zeros((480, 640, 3), "uint8"), operations).shape[:2]
    except ValueError:  # of an operation that TensorFlow alone has
        return
    if made != image_size(model):
        raise ValueError(
            f"Expected model.preprocessing to make images of {image_size(model)}, the model's "
            f"size. Received: {operations!r}, which makes {made}."
        )


def model_operations(model: keras.Model) -> str:
    """Returns the operations that make a photo into an image of a model, in [-1, 1].

    Those of `model.preprocessing`, or else a resize to the model's size.
    """
    return _known_operations(model) or resizing(image_size(model))


def _known_operations(model):
    """Returns `model.preprocessing`, its range in one spelling, or "" if it has another."""
    known = model.preprocessing or ""
    with contextlib.suppress(ValueError, TypeError, SyntaxError):  # operations of the user's own
        if maps_to_model_range(known):
            return known.removesuffix(known.rpartition("|")[2]) + _MODEL_RANGE
    return ""


def exported_operations(model: keras.Model) -> str:
    """Returns the operations that make a photo into an image of what is exported, in [0, 1]."""
    return model_operations(model).removesuffix(_MODEL_RANGE) + _EXPORTED_RANGE


def labels_of_model(
    labels: Iterable[str] | None, model: keras.Model, output: str
) -> list[str] | None:
    """Returns `labels` as a list, or where they are None the model's own, if it knows them.

    There is one for each logit; the output "representation" has none.

    Raises:
        ValueError: if there are others than logits, or one is no text, empty, or has a line break
            or the character 0.
    """
    expected = None if output == "representation" else model.arguments["num_classes"]
    if labels is None and expected is not None:
        labels = model.class_names
    if labels is None:
        return None
    if isinstance(labels, str | Mapping | Set):
        raise ValueError(f"Expected a list of class names. Received: {type(labels).__name__}")
    labels = list(labels)
    if expected is None:
        raise ValueError("Expected no labels for a model without a head. Pass labels=None.")
    if len(labels) != expected:
        raise ValueError(
            f"Expected one label for each of the model's {expected} classes. "
            f"Received: {len(labels)} labels."
        )
    for label in labels:
        if not isinstance(label, str):
            raise ValueError(f"Expected labels of one line each. Received: {label!r}")
        require_class_name(label)
    return labels
