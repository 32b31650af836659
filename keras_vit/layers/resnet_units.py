"""The layers of the hybrids' ResNet (version 1) and of BiT's (version 2)."""

from typing import Any

import keras
from keras import ops

from keras_vit.initializers import VarianceScaling
from keras_vit.layers.base import Layer
from keras_vit.layers.normalization import scaled, standardized
from keras_vit.name_suggestions import require_one_of
from keras_vit.type_hints import Tensor

# {name: mode of `ops.pad`}
POOL_PADDINGS = {"edge": "symmetric", "zero": "constant"}


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNormalization(keras.layers.GroupNormalization):
    """Normalizes groups of channels over space (Wu & He, 2018).

    Args:
        epsilon: float; 1e-6 in the hybrids, 1e-5 in BiT.
        groups: int, must divide the number of channels.

    Call arguments:
        inputs: (batch, height, width, channels).

    Returns:
        A tensor like `inputs` in the layer's compute dtype.
    """

    def __init__(self, epsilon: float = 1e-6, groups: int = 32, **kwargs: Any):
        super().__init__(groups=groups, epsilon=epsilon, **kwargs)

    def call(self, inputs: Tensor) -> Tensor:
        _, rows, columns, channels = ops.shape(inputs)
        groups = (-1, rows * columns, self.groups, channels // self.groups)
        normal = standardized(ops.reshape(inputs, groups), (1, 3), self.epsilon)
        return scaled(self, ops.reshape(normal, (-1, rows, columns, channels)))


@keras.saving.register_keras_serializable(package="keras_vit")
class StandardizedConv2D(keras.layers.Conv2D):
    """A convolution whose kernel has mean 0 and variance 1 per filter (Qiao et al., 2019).

    It has no bias. Further arguments are those of `keras.layers.Conv2D`.

    Args:
        standardization: "hybrid", (w - mean) / (std + 1e-5), the rule of the ViT
            hybrids' ResNet, or "bit", (w - mean) / sqrt(var + 1e-10), BiT's own.

    Call arguments:
        inputs: (batch, height, width, channels).

    Returns:
        (batch, new height, new width, filters).
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "same",
        standardization: str = "hybrid",
        **kwargs: Any,
    ):
        require_one_of("standardization", standardization, ("hybrid", "bit"))
        kwargs = {"kernel_initializer": VarianceScaling(), **kwargs}
        kwargs |= {"use_bias": False, "data_format": "channels_last"}
        super().__init__(filters, kernel_size, strides=strides, padding=padding, **kwargs)
        self.standardization = standardization

    def add_weight(self, *args: Any, **kwargs: Any) -> keras.Variable:
        # A kernel that is rounded first would lose the differences that standardizing enlarges.
        return super().add_weight(*args, **{**kwargs, "autocast": False})

    def standardize(self, kernel: Tensor) -> Tensor:
        """Returns the kernel with standardized filters, in float32."""
        kernel = ops.cast(kernel, "float32")
        centered = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(centered * centered, axis=(0, 1, 2), keepdims=True)
        if self.standardization == "hybrid":
            return centered / (ops.sqrt(variance) + 1e-5)
        return centered * ops.rsqrt(variance + 1e-10)

    def convolution_op(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        kernel = ops.cast(self.standardize(kernel), self.compute_dtype)
        return super().convolution_op(inputs, kernel)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "standardization": self.standardization}


@keras.saving.register_keras_serializable(package="keras_vit")
class RootPooling(Layer):
    """Maximum of 3x3 windows, two cells apart, with one cell of padding around.

    Args:
        padding: "edge" repeats the border, so padding never exceeds the feature map (the result of
            padding with minus infinity), or "zero", which does where the border is negative.

    Call arguments:
        inputs: (batch, height, width, channels).

    Returns:
        (batch, ceil(height / 2), ceil(width / 2), channels).
    """

    def __init__(self, padding: str = "edge", **kwargs: Any):
        super().__init__(**kwargs)
        require_one_of("padding", padding, POOL_PADDINGS)
        self.keep(locals())

    def call(self, inputs: Tensor) -> Tensor:
        padded = ops.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)), POOL_PADDINGS[self.padding])
        return ops.max_pool(padded, 3, 2, "valid", data_format="channels_last")

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return _strided(input_shape, 2, input_shape[-1])


def _strided(shape, strides, channels):
    batch, *size, _ = shape
    return (batch, *(None if n is None else -(-n // strides) for n in size), channels)


class BottleneckUnit(Layer):
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
    standardization: str
    padding: str  # of the 3x3 convolution
    epsilon: float

    def __init__(self, filters: int, strides: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def build(self, input_shape: tuple) -> None:
        channels, width = input_shape[-1], self.expansion * self.filters
        self.conv1 = self._conv("conv1", channels, self.filters)
        sizes = {"kernel_size": 3, "strides": self.strides, "padding": self.padding}
        self.conv2 = self._conv("conv2", self.filters, self.filters, **sizes)
        self.conv3 = self._conv("conv3", self.filters, width)
        self.projects = self.strides != 1 or channels != width
        if self.projects:
            self.conv_proj = self._conv("conv_proj", channels, width, strides=self.strides)

    def _conv(self, name, channels, filters, kernel_size=1, **kwargs):
        kwargs |= {"standardization": self.standardization, "shape": (None, None, None, channels)}
        return self.inner(StandardizedConv2D, name, filters, kernel_size, **kwargs)

    def _norm(self, name, channels, **kwargs):
        shape = (None, None, None, channels)
        return self.inner(GroupNormalization, name, self.epsilon, shape=shape, **kwargs)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return _strided(input_shape, self.strides, self.expansion * self.filters)


@keras.saving.register_keras_serializable(package="keras_vit")
class HybridUnit(BottleneckUnit):
    """The post-activation unit of the hybrids' ResNet. Arguments as for `BottleneckUnit`."""

    standardization = "hybrid"
    padding = "same"
    epsilon = 1e-6

    def build(self, input_shape: tuple) -> None:
        super().build(input_shape)
        width = self.expansion * self.filters
        self.gn1 = self._norm("gn1", self.filters)
        self.gn2 = self._norm("gn2", self.filters)
        self.gn3 = self._norm("gn3", width, gamma_initializer="zeros")
        if self.projects:
            self.gn_proj = self._norm("gn_proj", width)

    def call(self, inputs: Tensor) -> Tensor:
        residual = self.gn_proj(self.conv_proj(inputs)) if self.projects else inputs
        x = ops.relu(self.gn1(self.conv1(inputs)))
        x = ops.relu(self.gn2(self.conv2(x)))
        return ops.relu(residual + self.gn3(self.conv3(x)))


@keras.saving.register_keras_serializable(package="keras_vit")
class BiTUnit(BottleneckUnit):
    """The pre-activation unit of Big Transfer. Arguments as for `BottleneckUnit`."""

    standardization = "bit"
    padding = "valid"
    epsilon = 1e-5

    def build(self, input_shape: tuple) -> None:
        super().build(input_shape)
        self.gn1 = self._norm("gn1", input_shape[-1])
        self.gn2 = self._norm("gn2", self.filters)
        self.gn3 = self._norm("gn3", self.filters)
        self.pad = keras.layers.ZeroPadding2D(1, data_format="channels_last", name="pad")

    def call(self, inputs: Tensor) -> Tensor:
        x = ops.relu(self.gn1(inputs))
        residual = self.conv_proj(x) if self.projects else inputs
        x = self.conv1(x)
        x = self.conv2(self.pad(ops.relu(self.gn2(x))))
        return residual + self.conv3(ops.relu(self.gn3(x)))
