"""Group normalization with float32 statistics under every precision policy."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNormalization(keras.layers.GroupNormalization):
    """Normalizes 32 groups of channels over space (Wu & He, 2018).

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
        size = channels // self.groups
        x = ops.reshape(ops.cast(inputs, "float32"), (-1, rows * columns, self.groups, size))
        centered = x - ops.mean(x, axis=(1, 3), keepdims=True)
        variance = ops.mean(centered * centered, axis=(1, 3), keepdims=True)
        normal = centered * ops.rsqrt(variance + self.epsilon)
        normal = ops.reshape(normal, (-1, rows, columns, channels))
        scaled = normal * ops.cast(self.gamma, "float32") + ops.cast(self.beta, "float32")
        return ops.cast(scaled, self.compute_dtype)
