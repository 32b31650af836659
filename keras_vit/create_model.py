"""Models by name."""

import os
from typing import Any

import keras

from keras_vit import models, variants
from keras_vit.checkpoints import load_weights
from keras_vit.typing import ImageSize


def create_model(
    name: str,
    num_classes: int | None = 1000,
    image_size: ImageSize = 224,
    weights: str | os.PathLike | None = None,
    **overrides: Any,
) -> keras.Model:
    """Builds a model of the paper by its name.

    Args:
        name: one of `keras_vit.variants.NAMES` or `AXIAL_RESNETS`, or
            "ViT-SIZE/PATCH" with any patch size.
        num_classes: int, or None for the representation alone.
        image_size: int or (height, width), in pixels.
        weights: None for the original's random initialization, or the path or
            published name of a checkpoint, "augreg/B_16" for example: see
            `keras_vit.checkpoints.load_weights`. A head of another size is left
            as initialized.
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
    model_name = name.lower().replace("/", "_").replace("+", "_").replace("-", "_")
    arguments = {"name": model_name, **arguments, **overrides}
    model = getattr(models, class_name)(num_classes=num_classes, image_size=image_size, **arguments)
    if weights is not None:
        load_weights(model, weights)
    return model
