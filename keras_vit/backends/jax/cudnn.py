"""Attention by cuDNN, whose kernel keeps the probabilities out of memory."""

from collections.abc import Callable

import jax
import jax.extend
import jax.numpy as jnp

from keras_vit.type_hints import Tensor


def attention_of(head_size: int) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
    """Returns `attention`, or None if JAX runs elsewhere, or the kernel has no such head size."""
    fits = head_size % 8 == 0 and head_size <= 128
    return attention if fits and _on_nvidia() else None


def _on_nvidia():
    return "cuda" in jax.extend.backend.get_backend().platform_version


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Returns softmax(q k^T) v, equations 6 and 7, (batch, heads, tokens, head_size).

    All are of this shape, bfloat16 or float16, and the query is scaled.
    """
    batch, _, tokens, _ = query.shape
    # JAX refuses odd numbers of tokens where there is a gradient: one that does not count is added.
    padding = [(0, 0), (0, tokens % 2), (0, 0), (0, 0)]
    lengths = jnp.full(batch, tokens, jnp.int32) if tokens % 2 else None
    heads = jax.nn.dot_product_attention(
        *(jnp.pad(array.transpose(0, 2, 1, 3), padding) for array in (query, key, value)),
        scale=1.0,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return heads[:, :tokens].transpose(0, 2, 1, 3)
