"""Layer and group normalization.

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


def _scaled(layer, normal):
    scaled = normal * ops.cast(layer.gamma, "float32") + ops.cast(layer.beta, "float32")
    return ops.cast(scaled, layer.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNormalization(keras.layers.LayerNormalization):
    """Layer normalization over the last axis (equations 2 to 4).

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
        return _scaled(self, standardized(inputs, -1, self.epsilon))


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
        return _scaled(self, ops.reshape(normal, (-1, rows, columns, channels)))
