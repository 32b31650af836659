"""Which kernel computes attention without its probabilities."""

from collections.abc import Callable

import keras

from keras_vit.typing import Tensor


def flash_attention(
    dtype: str, head_size: int
) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
    """Returns the kernel: (scaled queries, keys, values) to the heads of equation 7.

    All are (batch, heads, tokens, head_size). JAX has one on NVIDIA's GPUs, cuDNN's, in 16 bits.

    Args:
        dtype: that attention computes in.
        head_size: channels of a head.

    Returns:
        A function, or None where there is none: attention is then computed plainly.
    """
    if keras.backend.backend() != "jax" or dtype not in ("bfloat16", "float16"):
        return None
    # JAX is imported only where it is the backend.
    from keras_vit.backends.jax import cudnn

    return cudnn.attention_of(head_size)
