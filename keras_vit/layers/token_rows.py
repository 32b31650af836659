"""The shape in which dense layers take tokens."""

import keras
from keras import ops

from keras_vit.typing import Tensor


def token_rows(tokens: Tensor, channels: int) -> Tensor:
    """Returns a row a token, (batch * tokens, channels); under JAX (batch, tokens, channels).

    TensorFlow's fused products and TFLite's dense layers take matrices. JAX's compilers divide the
    last two axes into tiles, across which a reshape copies, and keep both copies for the gradient.

    Args:
        tokens: (batch, tokens, ...), `channels` numbers a token.
        channels: int.
    """
    rows = (-1, tokens.shape[1]) if keras.backend.backend() == "jax" else (-1,)
    return ops.reshape(tokens, (*rows, channels))
