"""AxialResNet (Wang et al., 2020), the baseline of appendix D.5."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.layers import AxialUnit, RootPooling
from keras_vit.layers.axial_attention import batch_normalization
from keras_vit.layers.axial_resnet_unit import he_normal_fan_out
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
class AxialResNet(ImageModel):
    """A ResNet whose 3x3 convolutions are attention along columns, then along rows.

    A functional `keras.Model` from images, (batch, height, width, in_channels) float32 in
    [-1, 1], to logits, (batch, num_classes) float32, or to the representation
    where `num_classes` is None.

    Args:
        num_layers: ints, the residual units of each stage.
        width_factor: number, multiplies the channels.
        num_groups: int, heads of the attention.
        num_classes: int or None.
        image_size: int or (height, width), in pixels; multiples of the model's
            stride, 32 with four stages.
        head_bias_init: float, the initial bias of the head; its kernel is zero.
        in_channels: int, of the images.
    """

    def __init__(
        self,
        num_layers: Sequence[int] = (3, 4, 6, 3),
        width_factor: float = 0.5,
        num_groups: int = 8,
        num_classes: int | None = 1000,
        image_size: ImageSize = 224,
        head_bias_init: float = 0.0,
        in_channels: int = 3,
        name: str = "axial_resnet",
        trainable: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        arguments: dict[str, Any] = {
            "num_layers": as_units_per_stage(num_layers),
            "width_factor": width_factor,
            "num_groups": as_positive_int("num_groups", num_groups),
            "num_classes": as_num_classes(num_classes),
            "image_size": as_image_size(image_size),
            "head_bias_init": head_bias_init,
            "in_channels": as_positive_int("in_channels", in_channels),
        }
        shape = (*as_height_width(image_size), arguments["in_channels"])
        images = keras.Input(shape, dtype="float32", name="images")
        layer = LayersByName(dtype)
        x = layer("pad_root", keras.layers.ZeroPadding2D, padding=3)(images)
        x = layer(
            "conv_root",
            keras.layers.Conv2D,
            filters=int(64 * width_factor),
            kernel_size=7,
            strides=2,
            use_bias=False,
            kernel_initializer=he_normal_fan_out(),
            data_format="channels_last",
        )(x)
        x = layer("bn_root", batch_normalization)(x)
        x = layer("relu_root", keras.layers.Activation, activation="relu")(x)
        x = layer("pool_root", RootPooling)(x)
        endpoints = {"stem": x}
        for stage, units in enumerate(arguments["num_layers"]):
            for unit in range(units):
                x = layer(
                    f"block{stage + 1}_unit{unit + 1}",
                    AxialUnit,
                    filters=int(128 * width_factor) * 2**stage,
                    strides=2 if stage > 0 and unit == 0 else 1,
                    num_groups=arguments["num_groups"],
                )(x)
            endpoints[f"block_{stage:02d}"] = x
        endpoints["encoded"] = x
        x = layer("pool", keras.layers.GlobalAveragePooling2D)(x)
        endpoints.update(classification_head(x, layer, arguments["num_classes"], head_bias_init))
        super().__init__(images, endpoints, arguments, layer.policy, name, trainable)
