"""A small model of every family of graphs, with weights that matter."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import keras_vit

IMAGE_SIZE = 32
NUM_CLASSES = 5
_SHARED: dict[str, Any] = {"image_size": IMAGE_SIZE, "num_classes": NUM_CLASSES}
_VIT: dict[str, Any] = {
    "patch_size": 8,
    "hidden_size": 64,
    "mlp_dim": 128,
    "num_heads": 2,
    "num_layers": 2,
}
_RESNET: dict[str, Any] = {"num_layers": (1, 1), "width_factor": 0.5}


def _vit(**arguments: Any) -> Callable[[], keras.Model]:
    return lambda: keras_vit.VisionTransformer(**{**_SHARED, **_VIT, **arguments})


FAMILIES: dict[str, Callable[[], keras.Model]] = {
    "ViT, class token": _vit(),
    "mean of the tokens": _vit(classifier="gap"),
    "registers, class token beside the mean": _vit(classifier="token_gap", register_tokens=2),
    "attention pooling (MAP)": _vit(classifier="map"),
    "every token": _vit(classifier="unpooled"),
    "no head": _vit(num_classes=None),
    "pre-training head, erf": _vit(representation_size=16, gelu="erf"),
    "no positions": _vit(position_embedding="none"),
    "positions in two dimensions": _vit(position_embedding="learned_2d"),
    "sines and cosines": _vit(position_embedding="sincos_2d", classifier="gap"),
    "relative positions": _vit(position_embedding="relative"),
    "positions before every block": _vit(position_placement="every"),
    "the same, mean of the tokens": _vit(position_placement="every", classifier="gap"),
    "one table before every block": _vit(position_placement="shared"),
    "Axial-ViT": _vit(attention="axial", classifier="gap"),
    "Axial-ViT, MAP": _vit(attention="axial", classifier="map", position_placement="every"),
    "hybrid": _vit(resnet={"num_layers": (1, 1)}, patch_size=1),
    "hybrid, root alone": _vit(resnet={"num_layers": ()}, patch_size=4),
    "BiT": lambda: keras_vit.ResNetV2(**_SHARED, **_RESNET),
    "BiT, padded with zeros": lambda: keras_vit.ResNetV2(**_SHARED, **_RESNET, pool_padding="zero"),
    "AxialResNet": lambda: keras_vit.AxialResNet(**_SHARED, **_RESNET, num_groups=4),
}


def small_model(family: str) -> keras.Model:
    """Returns the model of a key of `FAMILIES`, always with the same random weights."""
    keras.utils.set_random_seed(0)
    model = FAMILIES[family]()
    generator = np.random.default_rng(0)
    for weight in model.weights:
        noise = generator.normal(0, 0.1, weight.shape).astype("float32")
        weight.assign(1 + noise if weight.name in ("gamma", "moving_variance") else noise)
    return model
