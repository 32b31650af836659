"""Classification from the class token (equation 4)."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class FirstToken(keras.layers.Layer):
    """Picks the class token.

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        (batch, channels), the first token.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.built = True

    def call(self, tokens: Tensor) -> Tensor:
        # A slice and a reshape: indexing with an integer shrinks an axis, which
        # phones' TFLite delegates do not take.
        return ops.reshape(tokens[:, :1], (-1, tokens.shape[-1]))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape[0], input_shape[2]

    def get_config(self) -> dict[str, Any]:
        # Keras's own record would hold the policy object that `dtype` may be.
        return super().get_config()
