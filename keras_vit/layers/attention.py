"""Multi-head attention (appendix A, equations 5 to 8)."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.backends.by_backend import token_rows
from keras_vit.initializers import glorot_uniform
from keras_vit.layers.base import Layer
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.position_embeddings_2d import rotated, rotation_tables
from keras_vit.type_hints import Tensor


class MultiHeadAttention(Layer):
    """Multi-head scaled dot-product attention (equations 5 to 8)."""

    def __init__(self, num_heads: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def build(self, input_shape: tuple) -> None:
        channels = input_shape[-1]
        if channels % self.num_heads:
            raise ValueError(
                "The number of channels must be a multiple of `num_heads`. "
                f"Received: channels={channels}, num_heads={self.num_heads}"
            )
        self.head_size = channels // self.num_heads
        self.scale = 1 / math.sqrt(self.head_size)
        self.query = self._dense("query", channels)
        self.key = self._dense("key", channels)
        self.value = self._dense("value", channels)
        self.out = self._dense("out", channels)

    def _dense(self, name, channels):
        initial = {"kernel_initializer": glorot_uniform()}
        return self.inner(keras.layers.Dense, name, channels, shape=(None, channels), **initial)

    def project(self, dense: keras.layers.Layer, tokens: Tensor) -> Tensor:
        """Returns q, k or v of equation 5, (batch, heads, tokens, head_size)."""
        _, length, channels = ops.shape(tokens)
        rows = dense(token_rows(tokens, channels))
        heads = ops.reshape(rows, (-1, length, self.num_heads, self.head_size))
        return ops.transpose(heads, (0, 2, 1, 3))

    def query_and_key(
        self, tokens: Tensor, context: Tensor, rotary_grid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns q, divided by sqrt(head_size), and k; turned by their places on a grid."""
        query = self.project(self.query, tokens) * self.scale
        key = self.project(self.key, context)
        if rotary_grid is None:
            return query, key
        rows, columns = ops.shape(rotary_grid)[1:3]
        tables = rotation_tables(rows, columns, self.head_size, ops.shape(key)[2])
        return rotated(query, tables), rotated(key, tables)

    def logits(self, query: Tensor, key: Tensor) -> Tensor:
        """Returns q k^T of equation 6; `query` is already divided by sqrt(head_size)."""
        return ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))

    def probabilities(
        self, tokens: Tensor, context: Tensor | None = None, rotary_grid: Tensor | None = None
    ) -> Tensor:
        """Returns A of equation 6, (batch, heads, queries, tokens) float32; rows sum to 1.

        `tokens`, (batch or 1, queries, channels), attend to `context`, (batch, tokens, channels),
        by default to themselves. `rotary_grid` as of `MultiHeadSelfAttention`.
        """
        context = tokens if context is None else context
        query, key = self.query_and_key(tokens, context, rotary_grid)
        return ops.softmax(ops.cast(self.logits(query, key), "float32"), axis=-1)

    def weighted_values(self, probabilities: Tensor, context: Tensor) -> Tensor:
        """Returns A v of equation 7 in all heads, combined, (batch, queries, channels)."""
        value = self.project(self.value, context)
        return self.combine_heads(ops.matmul(ops.cast(probabilities, self.compute_dtype), value))

    def combine_heads(self, heads: Tensor) -> Tensor:
        """Returns equation 8, (batch, queries, channels), from heads as `project` returns them."""
        length, channels = ops.shape(heads)[2], self.num_heads * self.head_size
        rows = self.out(token_rows(ops.transpose(heads, (0, 2, 1, 3)), channels))
        return ops.reshape(rows, (-1, length, channels))


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(MultiHeadAttention):
    """MSA: queries, keys and values from the same tokens.

    Args:
        num_heads: int, k of equation 8; must divide the number of channels.
        dropout_rate: float, of the attention probabilities (0 in every published configuration).

    Call arguments:
        tokens: (batch, tokens, channels).
        context: (batch, all tokens, channels), attended to, if `tokens` are only the first
            of them; `tokens` by default.
        rotary_grid: (batch, rows, columns, channels), the patches, which are the last of the
            tokens: queries and keys are turned by their places there (rotary position
            embeddings). None turns nothing.
        training: bool.

    Returns:
        A tensor like `tokens`.
    """

    def __init__(self, num_heads: int, dropout_rate: float = 0.0, **kwargs: Any):
        super().__init__(num_heads, **kwargs)
        self.keep(locals())
        self.dropout = self.inner(Dropout, "dropout", dropout_rate)

    def call(
        self,
        tokens: Tensor,
        context: Tensor | None = None,
        rotary_grid: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        context = tokens if context is None else context
        probabilities = self.probabilities(tokens, context, rotary_grid)
        return self.weighted_values(self.dropout(probabilities, training=training), context)
