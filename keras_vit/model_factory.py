"""Models by name."""

import fnmatch
import os
from typing import Any

import keras

from keras_vit import models, variants
from keras_vit.checkpoints import load_weights
from keras_vit.type_hints import ImageSize


def list_models(filter: str = "*") -> list[str]:
    """Returns the names that `create_model` knows, timm's for the same models among them.

    ViTs of the sizes in `keras_vit.variants.SIZES` have any patch size besides.

    Args:
        filter: pattern of `fnmatch`, "ViT-B/*" for example.

    Examples:
        >>> keras_vit.list_models("*dinov2*")
    """
    return fnmatch.filter(variants.EVERY_NAME, filter)


def create_model(
    name: str,
    num_classes: int | None = 1000,
    image_size: ImageSize | None = None,
    weights: str | os.PathLike | None = None,
    **overrides: Any,
) -> keras.Model:
    """Builds a model of the paper by its name.

    Args:
        name: one of `keras_vit.list_models()`, timm's names of the same models among
            them, or "ViT-SIZE/PATCH" with any patch size.
        num_classes: int, or None for the representation alone.
        image_size: int or (height, width), in pixels; None for that of timm's name
            ("deit_base_patch16_384"), or else 224.
        weights: None for the original's random initialization, or the path or published name of a
            checkpoint, "augreg/B_16" for example: see `keras_vit.list_weights` and
            `keras_vit.checkpoints.load_weights`. A head of another size is left as initialized.
        **overrides: further constructor arguments of the model's class.

    Returns:
        A `VisionTransformer`, `ResNetV2` or `AxialResNet`.

    Raises:
        ValueError: if the name is not known or an argument is out of its range.
        TypeError: if the model's class has no such argument.

    Examples:
        >>> model = keras_vit.create_model("ViT-B/16", num_classes=10, image_size=384)
    """
    class_name, arguments = variants.arguments_of(name)
    made = getattr(models, class_name)
    own_size = arguments.pop("image_size", 224)
    image_size = own_size if image_size is None else image_size
    model_name = name.lower().replace("/", "_").replace("+", "_").replace("-", "_")
    arguments = {"name": model_name, **arguments, **overrides}
    model = made(num_classes=num_classes, image_size=image_size, **arguments)
    if weights is not None:
        load_weights(model, weights)
    return model
