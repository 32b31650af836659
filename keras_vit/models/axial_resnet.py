"""AxialResNet (Wang et al., 2020), the baseline of appendix D.5."""

import keras

from keras_vit.layers import AxialUnit, RootPooling
from keras_vit.layers.axial_attention import batch_normalization
from keras_vit.layers.axial_resnet_unit import he_normal_fan_out
from keras_vit.models.argument_checks import (
    as_height_width,
    as_image_size,
    as_num_classes,
    as_positive_int,
)
from keras_vit.models.feature_map_classifier import FeatureMapClassifier


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialResNet(FeatureMapClassifier):
    """A ResNet whose 3x3 convolutions are attention along columns, then along rows.

    A functional `keras.Model` from images, (batch, height, width, 3) float32 in
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
    """

    def __init__(
        self,
        num_layers=(3, 4, 6, 3),
        width_factor=0.5,
        num_groups=8,
        num_classes=1000,
        image_size=224,
        head_bias_init=0.0,
        name="axial_resnet",
        trainable=True,
        dtype=None,
    ):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        num_groups = as_positive_int("num_groups", num_groups)
        height, width = as_height_width(image_size)
        num_layers = tuple(as_positive_int("num_layers", units) for units in num_layers)
        images = keras.Input((height, width, 3), dtype="float32", name="images")
        endpoints = {}
        x = keras.layers.ZeroPadding2D(3, dtype=policy, name="pad_root")(images)
        x = keras.layers.Conv2D(
            int(64 * width_factor),
            7,
            strides=2,
            use_bias=False,
            kernel_initializer=he_normal_fan_out(),
            data_format="channels_last",
            dtype=policy,
            name="conv_root",
        )(x)
        x = batch_normalization("bn_root", dtype=policy)(x)
        x = keras.layers.Activation("relu", dtype=policy, name="relu_root")(x)
        x = RootPooling(dtype=policy, name="pool_root")(x)
        endpoints["stem"] = x
        for stage, units in enumerate(num_layers):
            for unit in range(units):
                x = AxialUnit(
                    int(128 * width_factor) * 2**stage,
                    strides=2 if stage > 0 and unit == 0 else 1,
                    num_groups=num_groups,
                    dtype=policy,
                    name=f"block{stage + 1}_unit{unit + 1}",
                )(x)
            endpoints[f"block_{stage:02d}"] = x
        endpoints["encoded"] = x
        arguments = {
            "num_layers": num_layers,
            "width_factor": width_factor,
            "num_groups": num_groups,
            "num_classes": as_num_classes(num_classes),
            "image_size": as_image_size(image_size),
            "head_bias_init": head_bias_init,
        }
        super().__init__(images, endpoints, arguments, policy, name, trainable)
