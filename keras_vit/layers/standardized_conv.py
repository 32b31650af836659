"""Convolution with standardized weights (Qiao et al., 2019), as BiT and the hybrids use it."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor

STANDARDIZATIONS = ("hybrid", "bit")


@keras.saving.register_keras_serializable(package="keras_vit")
class StandardizedConv2D(keras.layers.Conv2D):
    """A convolution without bias whose kernel has mean 0 and variance 1 per filter.

    Further arguments are those of `keras.layers.Conv2D`.

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
        if standardization not in STANDARDIZATIONS:
            raise ValueError(
                f"`standardization` must be one of {STANDARDIZATIONS}. "
                f"Received: standardization={standardization!r}"
            )
        kwargs = {"kernel_initializer": "lecun_normal", **kwargs, "use_bias": False}
        super().__init__(
            filters,
            kernel_size,
            strides=strides,
            padding=padding,
            **{**kwargs, "data_format": "channels_last"},
        )
        self.standardization = standardization

    def add_weight(self, *args: Any, **kwargs: Any) -> keras.Variable:
        # Rounded before it is standardized, a kernel would lose what standardizing brings out.
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
