"""Multi-head attention (appendix A, equations 5 to 8)."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.layers.dropout import Dropout
from keras_vit.layers.flash_attention import flash_attention
from keras_vit.layers.relative_position import RelativePosition
from keras_vit.layers.token_rows import token_rows
from keras_vit.typing import Tensor


class MultiHeadAttention(keras.layers.Layer):
    """Queries gather tokens, in several heads side by side.

    Args:
        num_heads: int, k of equation 8; must divide the number of channels.
    """

    def __init__(self, num_heads: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, input_shape: tuple) -> None:
        channels = input_shape[-1]
        if channels % self.num_heads:
            raise ValueError(
                "The number of channels must be a multiple of `num_heads`. "
                f"Received: channels={channels}, num_heads={self.num_heads}"
            )
        self.head_size = channels // self.num_heads
        self.scale = 1 / math.sqrt(self.head_size)
        for name in ("query", "key", "value", "out"):
            dense = keras.layers.Dense(channels, dtype=self.dtype_policy, name=name)
            dense.build((None, channels))
            setattr(self, name, dense)

    def project(self, dense: keras.layers.Layer, tokens: Tensor) -> Tensor:
        """Returns q, k or v of equation 5, (batch, heads, tokens, head_size)."""
        _, length, channels = ops.shape(tokens)
        rows = dense(token_rows(tokens, channels))
        heads = ops.reshape(rows, (-1, length, self.num_heads, self.head_size))
        return ops.transpose(heads, (0, 2, 1, 3))

    def logits(self, query: Tensor, key: Tensor) -> Tensor:
        """Returns what equation 6 takes the softmax of; `query` is divided by sqrt(head_size)."""
        return ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))

    def probabilities(self, tokens: Tensor, queries: Tensor | None = None) -> Tensor:
        """Returns A of equation 6.

        Args:
            tokens: (batch, tokens, channels), attended to.
            queries: (batch or 1, queries, channels), attending; the tokens by default.

        Returns:
            (batch, heads, queries, tokens) float32; the last axis sums to 1.
        """
        query = self.project(self.query, tokens if queries is None else queries) * self.scale
        key = self.project(self.key, tokens)
        return ops.softmax(ops.cast(self.logits(query, key), "float32"), axis=-1)

    def gather(self, probabilities: Tensor, tokens: Tensor) -> Tensor:
        """Returns the projected heads A v of equations 7 and 8, (batch, queries, channels)."""
        value = self.project(self.value, tokens)
        return self.merge(ops.matmul(ops.cast(probabilities, self.compute_dtype), value))

    def merge(self, heads: Tensor) -> Tensor:
        """Returns equation 8, (batch, queries, channels).

        `heads` is (batch, heads, queries, head_size), equation 7.
        """
        _, _, length, _ = ops.shape(heads)
        channels = self.num_heads * self.head_size
        rows = self.out(token_rows(ops.transpose(heads, (0, 2, 1, 3)), channels))
        return ops.reshape(rows, (-1, length, channels))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(MultiHeadAttention):
    """MSA: queries, keys and values from the same tokens.

    Args:
        num_heads: int, k of equation 8; must divide the number of channels.
        dropout_rate: float, dropout of the attention probabilities (0 in every
            published configuration).
        relative_positions: bool, whether queries also meet a learned embedding
            of their distance to each key (appendix D.3).
        flash_attention: bool, whether a fused kernel computes attention where
            `keras_vit.layers.flash_attention` has one and nothing needs the
            probabilities: no relative positions, and no dropout of them.

    Call arguments:
        tokens: (batch, tokens, channels).
        training: bool.
        first_token_only: bool, whether to compute the output of the first token
            only. Every token is still attended to.

    Returns:
        (batch, tokens, channels), or (batch, 1, channels) for the first token.
    """

    def __init__(
        self,
        num_heads: int,
        dropout_rate: float = 0.0,
        relative_positions: bool = False,
        flash_attention: bool = False,
        **kwargs: Any,
    ):
        super().__init__(num_heads, **kwargs)
        self.dropout_rate = dropout_rate
        self.relative_positions = relative_positions
        self.flash_attention = flash_attention
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape: tuple) -> None:
        super().build(input_shape)
        if self.relative_positions:
            self.relative_position = RelativePosition(
                dtype=self.dtype_policy, name="relative_position"
            )
            self.relative_position.build((None, self.num_heads, input_shape[1], self.head_size))

    def logits(self, query: Tensor, key: Tensor) -> Tensor:
        logits = super().logits(query, key)
        return logits + self.relative_position(query) if self.relative_positions else logits

    def call(
        self, tokens: Tensor, training: bool = False, first_token_only: bool = False
    ) -> Tensor:
        dropping = training and self.dropout_rate > 0
        if self.flash_attention and not (first_token_only or self.relative_positions or dropping):
            kernel = flash_attention(self.compute_dtype, self.head_size)
            if kernel:
                query, key, value = (
                    self.project(dense, tokens) for dense in (self.query, self.key, self.value)
                )
                return self.merge(kernel(query * self.scale, key, value))
        queries = tokens[:, :1] if first_token_only else tokens
        probabilities = self.probabilities(tokens, queries)
        return self.gather(self.dropout(probabilities, training=training), tokens)

    def compute_output_spec(
        self, tokens: Tensor, training: bool = False, first_token_only: bool = False
    ) -> keras.KerasTensor:
        batch, length, channels = tokens.shape
        shape = (batch, 1 if first_token_only else length, channels)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout_rate": self.dropout_rate,
            "relative_positions": self.relative_positions,
            "flash_attention": self.flash_attention,
        }
