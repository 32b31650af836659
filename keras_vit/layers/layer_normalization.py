"""Layer normalization in the form that compilers fuse and converters quantize."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNormalization(keras.layers.LayerNormalization):
    """Layer normalization over the last axis (equations 2 to 4).

    The statistics are float32 under every precision policy, the variance is the
    biased one. The arithmetic is spelled with products only: the spelling of
    `keras.ops.layer_normalization` leaves a negation and a squared difference in
    the graph, which keep TFLite from quantizing it.

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
        x = ops.cast(inputs, "float32")
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(centered * centered, axis=-1, keepdims=True)
        normal = centered * ops.rsqrt(variance + self.epsilon)
        scaled = normal * ops.cast(self.gamma, "float32") + ops.cast(self.beta, "float32")
        return ops.cast(scaled, self.compute_dtype)
