"""The ResNets: in front of a hybrid's Transformer, Big Transfer's, and AxialResNet."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_vit import layers
from keras_vit.layers.axial import batch_normalization, convolution
from keras_vit.models.argument_ranges import checked
from keras_vit.models.image_model import ImageModel, classification_head, images_and_policy
from keras_vit.type_hints import ImageSize, Tensor


def stem_stride(num_layers: tuple[int, ...]) -> int:
    """Returns the pixels between neighboring cells of a hybrid's feature map."""
    # The root halves the image twice; every stage after the first halves it again.
    return 4 * 2 ** max(len(num_layers) - 1, 0)


def hybrid_stem(
    images: Tensor, dtype: keras.DTypePolicy, num_layers: tuple[int, ...], width_factor: float
) -> Tensor:
    """Applies the ResNet of a hybrid to a Keras tensor (section 3.1, "Hybrid Architecture").

    Returns the feature map; see `stem_stride` for its size. Without `num_layers`, the residual
    units of each stage, it is the root's. `width_factor` multiplies the channels.
    """
    width = int(64 * width_factor)
    x = layers.StandardizedConv2D(width, 7, strides=2, name="conv_root", dtype=dtype)(images)
    x = layers.GroupNormalization(name="gn_root", dtype=dtype)(x)
    x = keras.layers.Activation("relu", name="relu_root", dtype=dtype)(x)
    pool = keras.layers.MaxPooling2D(3, 2, "same", "channels_last", name="pool_root", dtype=dtype)
    x = pool(x)
    return _stages(x, num_layers, "{}", {}, layers.HybridUnit, width, dtype=dtype)


def _stages(x, num_layers, number, endpoints, unit_of, filters, **arguments):
    """Applies the residual units and adds each stage's output to `endpoints`."""
    for stage, units in enumerate(num_layers):
        for unit in range(units):
            name = f"block{stage + 1}_unit{number.format(unit + 1)}"
            strides = 2 if stage and not unit else 1
            x = unit_of(filters * 2**stage, strides, name=name, **arguments)(x)
        endpoints[f"block_{stage:02d}"] = x
    return x


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetV2(ImageModel):
    """Big Transfer's ResNet-v2 (Kolesnikov et al., 2020), the paper's baseline.

    It has group normalization and weight standardization. A functional `keras.Model` from images,
    (batch, height, width, in_channels) float32 in [-1, 1], to logits, (batch, num_classes) float32,
    or to the representation where `num_classes` is None.

    Args:
        num_layers: ints, the residual units of each stage; (3, 4, 6, 3) is ResNet-50.
        width_factor: number, multiplies the channels.
        num_classes: int or None.
        image_size: int or (height, width), in pixels.
        head_bias_init: float, the initial bias of the head; its kernel is zero.
        in_channels: int, of the images.
        pool_padding: "edge" or "zero", the padding of the root's max pooling, which changes results
            as the root has no ReLU. BiT's code and the models of its names pad with zeros;
            big_vision reads the same files with the border repeated, "edge".
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
        arguments = checked(locals())
        images, x, policy = _padded_images(arguments, dtype)
        width, own = int(64 * width_factor), {"dtype": policy}
        x = layers.StandardizedConv2D(width, 7, 2, "valid", "bit", name="conv_root", **own)(x)
        x = layers.RootPooling(pool_padding, name="pool_root", **own)(x)
        endpoints = {"stem": x}
        x = _stages(x, arguments["num_layers"], "{:02d}", endpoints, layers.BiTUnit, width, **own)
        x = layers.GroupNormalization(1e-5, name="group_norm", **own)(x)
        x = keras.layers.Activation("relu", name="relu", **own)(x)
        endpoints |= _pooled_head(x, policy, arguments)
        super().__init__(images, endpoints, arguments, policy, name, trainable)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialResNet(ImageModel):
    """AxialResNet (Wang et al., 2020), the baseline of appendix D.5.

    A ResNet whose 3x3 convolutions are attention along columns, then along rows. A functional
    `keras.Model` from images, (batch, height, width, in_channels) float32 in [-1, 1], to logits,
    (batch, num_classes) float32, or to the representation where `num_classes` is None.

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
        arguments = checked(locals())
        images, x, policy = _padded_images(arguments, dtype)
        x = convolution(int(64 * width_factor), 7, 2, name="conv_root", dtype=policy)(x)
        x = batch_normalization("bn_root", dtype=policy)(x)
        x = keras.layers.Activation("relu", name="relu_root", dtype=policy)(x)
        x = layers.RootPooling(name="pool_root", dtype=policy)(x)
        endpoints = {"stem": x}
        width, groups = int(128 * width_factor), arguments["num_groups"]
        own = {"num_groups": groups, "dtype": policy}
        x = _stages(x, arguments["num_layers"], "{}", endpoints, layers.AxialUnit, width, **own)
        endpoints |= _pooled_head(x, policy, arguments)
        super().__init__(images, endpoints, arguments, policy, name, trainable)


def _padded_images(arguments: dict[str, Any], dtype: Any):
    """Returns (the input, the input with a border of 3 zeros, the policy of the layers)."""
    images, policy = images_and_policy(arguments, dtype)
    pad = keras.layers.ZeroPadding2D(3, "channels_last", name="pad_root", dtype=policy)
    return images, pad(images), policy


def _pooled_head(x, dtype, arguments):
    """Returns the last endpoints of a ResNet."""
    pooled = keras.layers.GlobalAveragePooling2D("channels_last", name="pool", dtype=dtype)(x)
    classify = classification_head(arguments["num_classes"], arguments["head_bias_init"])
    return {"encoded": x, **classify(pooled)}
