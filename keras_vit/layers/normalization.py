"""Layer normalization (equations 2 to 4).

The statistics are float32 under every precision policy; the variance is the biased one. The
arithmetic has products only: Keras's own leaves a negation and a squared difference in the graph,
which TFLite cannot quantize.
"""

from typing import Any

import keras
from keras import ops

from keras_vit.type_hints import Tensor


def standardized(x: Tensor, axis: int | tuple[int, ...], epsilon: float) -> Tensor:
    """Returns `x` in float32 with mean 0 and variance 1 over `axis`.

    `epsilon` is added to the variance before its root is taken.
    """
    x = ops.cast(x, "float32")
    centered = x - ops.mean(x, axis=axis, keepdims=True)
    variance = ops.mean(centered * centered, axis=axis, keepdims=True)
    return centered * ops.rsqrt(variance + epsilon)


def scaled(layer: keras.layers.Layer, normal: Tensor) -> Tensor:
    """Returns normal * gamma + beta, in the compute dtype of `layer`, whose weights these are."""
    result = normal * ops.cast(layer.gamma, "float32") + ops.cast(layer.beta, "float32")
    return ops.cast(result, layer.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNormalization(keras.layers.LayerNormalization):
    """Layer normalization over the last axis.

    Args:
        epsilon: float, added to the variance. The original uses 1e-6.

    Call arguments:
        inputs: (..., channels) float tensor.

    Returns:
        A tensor like `inputs` in the layer's compute dtype.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(epsilon=epsilon, **kwargs)

    def call(self, inputs: Tensor) -> Tensor:
        return scaled(self, standardized(inputs, -1, self.epsilon))
