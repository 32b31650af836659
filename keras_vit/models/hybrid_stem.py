"""The ResNet in front of a hybrid's Transformer (section 3.1, "Hybrid Architecture")."""

from typing import Any

import keras

from keras_vit.layers import GroupNormalization, HybridUnit, StandardizedConv2D
from keras_vit.models.argument_checks import as_units_per_stage
from keras_vit.models.layers_by_name import LayersByName
from keras_vit.typing import Tensor


def as_resnet(resnet: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the checked argument `resnet` of a hybrid, or None.

    Raises:
        ValueError: if it is not {"num_layers": (...), "width_factor": number}.
    """
    if resnet is None:
        return None
    known = {"num_layers", "width_factor"}
    if set(resnet) - known or "num_layers" not in resnet:
        raise ValueError(
            '`resnet` must be {"num_layers": (...), "width_factor": int}. '
            f"Received: resnet={resnet}"
        )
    return {
        "num_layers": as_units_per_stage(resnet["num_layers"]),
        "width_factor": resnet.get("width_factor", 1),
    }


def stem_stride(num_layers: tuple[int, ...]) -> int:
    """Returns how many pixels a cell of the feature map is apart from the next."""
    # The root halves the image twice; every stage after the first halves it again.
    return 4 * 2 ** max(len(num_layers) - 1, 0)


def hybrid_stem(
    images: Tensor, layer: LayersByName, num_layers: tuple[int, ...], width_factor: float
) -> Tensor:
    """Applies the ResNet to images.

    Args:
        images: (batch, height, width, channels) Keras tensor.
        layer: makes the layers.
        num_layers: ints, the residual units of each stage; empty for the root alone.
        width_factor: number, multiplies the channels.

    Returns:
        The feature map, a Keras tensor; see `stem_stride` for its size.
    """
    width = int(64 * width_factor)
    x = layer("conv_root", StandardizedConv2D, filters=width, kernel_size=7, strides=2)(images)
    x = layer("gn_root", GroupNormalization)(x)
    x = layer("relu_root", keras.layers.Activation, activation="relu")(x)
    x = layer("pool_root", keras.layers.MaxPooling2D, pool_size=3, strides=2, padding="same")(x)
    for stage, units in enumerate(num_layers):
        for unit in range(units):
            strides = 2 if stage > 0 and unit == 0 else 1
            name = f"block{stage + 1}_unit{unit + 1}"
            x = layer(name, HybridUnit, filters=width * 2**stage, strides=strides)(x)
    return x
