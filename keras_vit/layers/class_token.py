"""The class token (equation 1)."""

import keras
from keras import ops

from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(Layer):
    """Prepends x_class, one learned token that is initially zero, to every sequence.

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        (batch, 1 + tokens, channels).
    """

    def build(self, input_shape: tuple) -> None:
        shape = (1, 1, input_shape[-1])
        self.token = self.add_weight(name="token", shape=shape, initializer="zeros")

    def call(self, tokens: Tensor) -> Tensor:
        batch, _, channels = ops.shape(tokens)
        token = ops.broadcast_to(self.token, (batch, 1, channels))
        return ops.concatenate([ops.cast(token, tokens.dtype), tokens], axis=1)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, tokens, channels = input_shape
        return batch, None if tokens is None else 1 + tokens, channels
