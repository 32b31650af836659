"""Bottleneck residual units: the hybrids' (version 1) and BiT's (version 2)."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.group_normalization import GroupNormalization
from keras_vit.layers.standardized_conv import StandardizedConv2D
from keras_vit.typing import Tensor


class BottleneckUnit(keras.layers.Layer):
    """1x1, 3x3 and 1x1 convolutions around a shortcut.

    Args:
        filters: int, f; the unit's output has 4 f channels.
        strides: int, the stride of the 3x3 convolution and of the shortcut.

    Call arguments:
        inputs: (batch, height, width, channels).

    Returns:
        (batch, height / strides, width / strides, 4 * filters).
    """

    expansion = 4

    def __init__(self, filters: int, strides: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides

    def _conv(self, filters, kernel_size, strides, name, padding="same"):
        return StandardizedConv2D(
            filters,
            kernel_size,
            strides,
            padding,
            standardization=self.standardization,
            dtype=self.dtype_policy,
            name=name,
        )

    def _norm(self, name, **kwargs):
        return GroupNormalization(self.epsilon, dtype=self.dtype_policy, name=name, **kwargs)

    def needs_projection(self, channels: int) -> bool:
        """Whether the shortcut from `channels` channels is a convolution, not the identity."""
        return self.strides != 1 or channels != self.expansion * self.filters

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, rows, columns, _ = input_shape

        def shrink(size):
            return None if size is None else -(-size // self.strides)

        return batch, shrink(rows), shrink(columns), self.expansion * self.filters

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "filters": self.filters, "strides": self.strides}


@keras.saving.register_keras_serializable(package="keras_vit")
class HybridUnit(BottleneckUnit):
    """The post-activation unit of the hybrids' ResNet. Arguments as for `BottleneckUnit`."""

    standardization = "hybrid"
    epsilon = 1e-6

    def build(self, input_shape: tuple) -> None:
        channels, width = input_shape[-1], self.expansion * self.filters
        self.conv1 = self._conv(self.filters, 1, 1, "conv1")
        self.gn1 = self._norm("gn1")
        self.conv2 = self._conv(self.filters, 3, self.strides, "conv2")
        self.gn2 = self._norm("gn2")
        self.conv3 = self._conv(width, 1, 1, "conv3")
        self.gn3 = self._norm("gn3", gamma_initializer="zeros")
        self.conv1.build((None, None, None, channels))
        self.gn1.build((None, None, None, self.filters))
        self.conv2.build((None, None, None, self.filters))
        self.gn2.build((None, None, None, self.filters))
        self.conv3.build((None, None, None, self.filters))
        self.gn3.build((None, None, None, width))
        self.projects = self.needs_projection(channels)
        if self.projects:
            self.conv_proj = self._conv(width, 1, self.strides, "conv_proj")
            self.conv_proj.build((None, None, None, channels))
            self.gn_proj = self._norm("gn_proj")
            self.gn_proj.build((None, None, None, width))

    def call(self, inputs: Tensor) -> Tensor:
        residual = self.gn_proj(self.conv_proj(inputs)) if self.projects else inputs
        x = ops.relu(self.gn1(self.conv1(inputs)))
        x = ops.relu(self.gn2(self.conv2(x)))
        return ops.relu(residual + self.gn3(self.conv3(x)))


@keras.saving.register_keras_serializable(package="keras_vit")
class BiTUnit(BottleneckUnit):
    """The pre-activation unit of Big Transfer. Arguments as for `BottleneckUnit`."""

    standardization = "bit"
    epsilon = 1e-5

    def build(self, input_shape: tuple) -> None:
        channels, width = input_shape[-1], self.expansion * self.filters
        self.gn1 = self._norm("gn1")
        self.conv1 = self._conv(self.filters, 1, 1, "conv1")
        self.gn2 = self._norm("gn2")
        self.pad = keras.layers.ZeroPadding2D(1, data_format="channels_last", name="pad")
        self.conv2 = self._conv(self.filters, 3, self.strides, "conv2", "valid")
        self.gn3 = self._norm("gn3")
        self.conv3 = self._conv(width, 1, 1, "conv3")
        self.gn1.build((None, None, None, channels))
        self.conv1.build((None, None, None, channels))
        self.gn2.build((None, None, None, self.filters))
        self.conv2.build((None, None, None, self.filters))
        self.gn3.build((None, None, None, self.filters))
        self.conv3.build((None, None, None, self.filters))
        self.projects = self.needs_projection(channels)
        if self.projects:
            self.conv_proj = self._conv(width, 1, self.strides, "conv_proj")
            self.conv_proj.build((None, None, None, channels))

    def call(self, inputs: Tensor) -> Tensor:
        x = ops.relu(self.gn1(inputs))
        residual = self.conv_proj(x) if self.projects else inputs
        x = self.conv1(x)
        x = self.conv2(self.pad(ops.relu(self.gn2(x))))
        return residual + self.conv3(ops.relu(self.gn3(x)))
