"""What goes into an exported model and what comes out, as a file inside of it says it."""

import json
import re

import keras

from export.portable_model import image_size
from training.evaluators.model_source import resizing

FILE = "interface.json"
_MODEL_RANGE = re.compile(r"value_range\(\s*-1(\.0)?\s*,\s*1(\.0)?\s*\)\s*$")


def interface_json(model: keras.Model, activation: str | None) -> str:
    """Returns the JSON of `interface.json`.

    Its keys: `image_size`, [height, width] in pixels; `image_range`, [0, 1], of RGB;
    `preprocessing`, the operations that make such an image of a photo (docs/data.md);
    `activation`, from logits to probabilities, null without a head.

    Args:
        model: of this package.
        activation: "softmax" or "sigmoid", or None where the output is no logits.
    """
    content = {
        "image_size": list(image_size(model)),
        "image_range": [0, 1],
        "preprocessing": exported_operations(model),
        "activation": activation,
    }
    return json.dumps(content, indent=2) + "\n"


def model_operations(model: keras.Model) -> str:
    """Returns the operations that make a photo into an image of a model, in [-1, 1].

    Those of `model.preprocessing`, or else a resize to the model's size.
    """
    known = model.preprocessing
    return known if known and _MODEL_RANGE.search(known) else resizing(image_size(model))


def exported_operations(model: keras.Model) -> str:
    """Returns the operations that make a photo into an image of what is exported, in [0, 1]."""
    return _MODEL_RANGE.sub("value_range(0,1)", model_operations(model))
