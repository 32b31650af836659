"""The learnable class embedding x_class of equation 1."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(keras.layers.Layer):
    """Prepends one learned token, initially zero, to every sequence.

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        (batch, 1 + tokens, channels).
    """

    def build(self, input_shape: tuple) -> None:
        self.token = self.add_weight(
            name="token", shape=(1, 1, input_shape[-1]), initializer="zeros"
        )

    def call(self, tokens: Tensor) -> Tensor:
        token = ops.broadcast_to(self.token, (ops.shape(tokens)[0], 1, tokens.shape[-1]))
        return ops.concatenate([ops.cast(token, tokens.dtype), tokens], axis=1)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, tokens, channels = input_shape
        return batch, None if tokens is None else tokens + 1, channels

    def get_config(self) -> dict[str, Any]:
        # Keras's own record would hold the policy object that `dtype` may be.
        return super().get_config()
