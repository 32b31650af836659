"""The residual unit of AxialResNet: axial attention in place of the 3x3 convolution."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.axial_attention import AxialAttention, batch_normalization
from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialUnit(keras.layers.Layer):
    """1x1 convolution, attention along columns, then along rows, 1x1 convolution, shortcut.

    Args:
        filters: int, f; the unit's output has 2 f channels.
        strides: int; the average of so many cells squared ends the attention,
            and the shortcut's convolution has that stride.
        num_groups: int, heads of the attention.

    Call arguments:
        inputs: (batch, height, width, channels), of fixed height and width.
        training: bool.

    Returns:
        (batch, height / strides, width / strides, 2 * filters).
    """

    expansion = 2

    def __init__(self, filters: int, strides: int = 1, num_groups: int = 8, **kwargs: Any):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides
        self.num_groups = num_groups

    def build(self, input_shape: tuple) -> None:
        _, height, width, channels = input_shape
        if height % self.strides or width % self.strides:
            raise ValueError(
                f"The feature map's height and width must be multiples of {self.strides}. "
                f"Received: {height} x {width}. Use an image size that is a multiple of 32."
            )
        out = self.expansion * self.filters
        policy = {"dtype": self.dtype_policy}
        self.conv_down = self._convolution(self.filters, 1, "conv_down")
        self.conv_down.build(input_shape)
        inner = (None, height, width, self.filters)
        self.bn1 = batch_normalization("bn1", **policy)
        self.bn1.build(inner)
        self.height_attention = AxialAttention(
            "height", self.num_groups, name="height_attention", **policy
        )
        self.height_attention.build(inner)
        self.width_attention = AxialAttention(
            "width", self.num_groups, name="width_attention", **policy
        )
        self.width_attention.build(inner)
        self.conv_up = self._convolution(out, 1, "conv_up")
        self.conv_up.build(inner)
        self.bn2 = batch_normalization("bn2", gamma_initializer="zeros", **policy)
        self.bn2.build((None, None, None, out))
        self.projects = self.strides != 1 or channels != out
        if self.projects:
            self.conv_proj = self._convolution(out, self.strides, "conv_proj")
            self.conv_proj.build(input_shape)
            self.bn_proj = batch_normalization("bn_proj", **policy)
            self.bn_proj.build((None, None, None, out))

    def _convolution(self, filters, strides, name):
        return keras.layers.Conv2D(
            filters,
            1,
            strides=strides,
            use_bias=False,
            kernel_initializer=he_normal_fan_out(),
            data_format="channels_last",
            dtype=self.dtype_policy,
            name=name,
        )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        x = ops.relu(self.bn1(self.conv_down(inputs), training=training))
        x = self.height_attention(x, training=training)
        x = self.width_attention(x, training=training)
        if self.strides != 1:
            x = ops.average_pool(
                x, self.strides, self.strides, "valid", data_format="channels_last"
            )
        x = self.bn2(self.conv_up(ops.relu(x)), training=training)
        residual = inputs
        if self.projects:
            residual = self.bn_proj(self.conv_proj(inputs), training=training)
        return ops.relu(x + residual)

    def compute_output_spec(self, inputs: Tensor, training: bool = False) -> keras.KerasTensor:
        batch, height, width, _ = inputs.shape
        shape = (batch, height // self.strides, width // self.strides)
        return keras.KerasTensor((*shape, self.expansion * self.filters), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "strides": self.strides,
            "num_groups": self.num_groups,
        }


def he_normal_fan_out() -> keras.Initializer:
    """Returns He's initialization for the number of outputs, as ResNets use it."""
    return keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
