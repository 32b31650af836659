"""Big Transfer's ResNet-v2 (Kolesnikov et al., 2020), the paper's baseline."""

import keras

from keras_vit.layers import BiTUnit, GroupNormalization, RootPooling, StandardizedConv2D
from keras_vit.models.argument_checks import (
    as_height_width,
    as_image_size,
    as_num_classes,
    as_positive_int,
)
from keras_vit.models.feature_map_classifier import FeatureMapClassifier


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetV2(FeatureMapClassifier):
    """A pre-activation ResNet with group normalisation and weight standardisation.

    A functional `keras.Model` from images, (batch, height, width, 3) float32 in
    [-1, 1], to logits, (batch, num_classes) float32, or to the representation
    where `num_classes` is None.

    Args:
        num_layers: ints, the residual units of each stage; (3, 4, 6, 3) is
            ResNet-50.
        width_factor: number, multiplies the channels.
        num_classes: int or None.
        image_size: int or (height, width), in pixels.
        head_bias_init: float, the initial bias of the head; its kernel is zero.
        pool_padding: "edge" or "zero", the padding of the root's max pooling.
            The root does not rectify, so it matters: BiT's own code pads with
            zeros, which the models of its names do; big_vision's reading of the
            same files, like "edge", never lets padding win.
    """

    def __init__(
        self,
        num_layers=(3, 4, 6, 3),
        width_factor=1,
        num_classes=1000,
        image_size=224,
        head_bias_init=0.0,
        pool_padding="edge",
        name="resnet_v2",
        trainable=True,
        dtype=None,
    ):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        height, width = as_height_width(image_size)
        num_layers = tuple(as_positive_int("num_layers", units) for units in num_layers)
        images = keras.Input((height, width, 3), dtype="float32", name="images")
        endpoints = {}
        root = int(64 * width_factor)
        x = keras.layers.ZeroPadding2D(3, dtype=policy, name="pad_root")(images)
        x = StandardizedConv2D(
            root, 7, 2, "valid", standardization="bit", dtype=policy, name="conv_root"
        )(x)
        x = RootPooling(pool_padding, dtype=policy, name="pool_root")(x)
        endpoints["stem"] = x
        for stage, units in enumerate(num_layers):
            for unit in range(units):
                strides = 2 if stage > 0 and unit == 0 else 1
                layer_name = f"block{stage + 1}_unit{unit + 1:02d}"
                x = BiTUnit(root * 2**stage, strides, dtype=policy, name=layer_name)(x)
            endpoints[f"block_{stage:02d}"] = x
        x = GroupNormalization(1e-5, dtype=policy, name="group_norm")(x)
        x = keras.layers.Activation("relu", dtype=policy, name="relu")(x)
        endpoints["encoded"] = x
        arguments = {
            "num_layers": num_layers,
            "width_factor": width_factor,
            "num_classes": as_num_classes(num_classes),
            "image_size": as_image_size(image_size),
            "head_bias_init": head_bias_init,
            "pool_padding": pool_padding,
        }
        super().__init__(images, endpoints, arguments, policy, name, trainable)
