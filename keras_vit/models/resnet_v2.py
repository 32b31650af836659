"""Big Transfer's ResNet-v2 (Kolesnikov et al., 2020), the paper's baseline."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.layers import BiTUnit, GroupNormalization, RootPooling, StandardizedConv2D
from keras_vit.models.argument_checks import (
    as_height_width,
    as_image_size,
    as_num_classes,
    as_positive_int,
    as_units_per_stage,
)
from keras_vit.models.base import ImageModel
from keras_vit.models.head import classification_head
from keras_vit.models.layers_by_name import LayersByName
from keras_vit.typing import ImageSize


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetV2(ImageModel):
    """A pre-activation ResNet with group normalization and weight standardization.

    A functional `keras.Model` from images, (batch, height, width, in_channels) float32 in
    [-1, 1], to logits, (batch, num_classes) float32, or to the representation
    where `num_classes` is None.

    Args:
        num_layers: ints, the residual units of each stage; (3, 4, 6, 3) is
            ResNet-50.
        width_factor: number, multiplies the channels.
        num_classes: int or None.
        image_size: int or (height, width), in pixels.
        head_bias_init: float, the initial bias of the head; its kernel is zero.
        in_channels: int, of the images.
        pool_padding: "edge" or "zero", the padding of the root's max pooling.
            The root does not rectify, so it matters: BiT's own code pads with
            zeros, which the models of its names do; big_vision's reading of the
            same files, like "edge", never lets padding win.
    """

    def __init__(
        self,
        num_layers: Sequence[int] = (3, 4, 6, 3),
        width_factor: float = 1,
        num_classes: int | None = 1000,
        image_size: ImageSize = 224,
        head_bias_init: float = 0.0,
        pool_padding: str = "edge",
        in_channels: int = 3,
        name: str = "resnet_v2",
        trainable: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        arguments: dict[str, Any] = {
            "num_layers": as_units_per_stage(num_layers),
            "width_factor": width_factor,
            "num_classes": as_num_classes(num_classes),
            "image_size": as_image_size(image_size),
            "head_bias_init": head_bias_init,
            "in_channels": as_positive_int("in_channels", in_channels),
            "pool_padding": pool_padding,
        }
        shape = (*as_height_width(image_size), arguments["in_channels"])
        images = keras.Input(shape, dtype="float32", name="images")
        layer = LayersByName(dtype)
        root = int(64 * width_factor)
        x = layer("pad_root", keras.layers.ZeroPadding2D, padding=3)(images)
        x = layer(
            "conv_root",
            StandardizedConv2D,
            filters=root,
            kernel_size=7,
            strides=2,
            padding="valid",
            standardization="bit",
        )(x)
        x = layer("pool_root", RootPooling, padding=pool_padding)(x)
        endpoints = {"stem": x}
        for stage, units in enumerate(arguments["num_layers"]):
            for unit in range(units):
                strides = 2 if stage > 0 and unit == 0 else 1
                unit_name = f"block{stage + 1}_unit{unit + 1:02d}"
                x = layer(unit_name, BiTUnit, filters=root * 2**stage, strides=strides)(x)
            endpoints[f"block_{stage:02d}"] = x
        x = layer("group_norm", GroupNormalization, epsilon=1e-5)(x)
        x = layer("relu", keras.layers.Activation, activation="relu")(x)
        endpoints["encoded"] = x
        x = layer("pool", keras.layers.GlobalAveragePooling2D)(x)
        endpoints.update(classification_head(x, layer, arguments["num_classes"], head_bias_init))
        super().__init__(images, endpoints, arguments, layer.policy, name, trainable)
