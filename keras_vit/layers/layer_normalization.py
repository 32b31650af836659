"""Layer normalisation in the form that compilers fuse and converters quantise."""

import keras
from keras import ops

from keras_vit.layers.kernels import substitute


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNormalization(keras.layers.LayerNormalization):
    """Layer normalisation over the last axis (equations 2 to 4).

    The statistics are float32 under every precision policy, the variance is the
    biased one. The arithmetic is spelled with products only: the spelling of
    `keras.ops.layer_normalization` leaves a negation and a squared difference in
    the graph, which keep TFLite from quantising it.

    Args:
        epsilon: float, added to the variance. The original uses 1e-6.

    Call arguments:
        inputs: (..., channels) float tensor.

    Returns:
        A tensor like `inputs` in the layer's compute dtype.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)

    def call(self, inputs):
        kernels = substitute()
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        if kernels and dtype == self.compute_dtype != "float64":
            return kernels.layer_normalization(inputs, self.gamma, self.beta, self.epsilon)
        x = ops.cast(inputs, "float32")
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(centred * centred, axis=-1, keepdims=True)
        normal = centred * ops.rsqrt(variance + self.epsilon)
        scaled = normal * ops.cast(self.gamma, "float32") + ops.cast(self.beta, "float32")
        return ops.cast(scaled, self.compute_dtype)
