"""Multi-head self-attention (appendix A, equations 5 to 8)."""

import math

import keras
from keras import ops

from keras_vit.layers.dropout import Dropout
from keras_vit.layers.kernels import substitute
from keras_vit.layers.relative_position import RelativePosition


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(keras.layers.Layer):
    """MSA: queries, keys and values from the same tokens, heads side by side.

    Args:
        num_heads: int, h; must divide the number of channels.
        dropout_rate: float, dropout of the attention probabilities (0 in every
            published configuration).
        relative_positions: bool, whether queries also meet a learned embedding
            of their distance to each key (appendix D.3).

    Call arguments:
        tokens: (batch, tokens, channels).
        training: bool.
        first_token_only: bool, whether to compute the output of the first token
            only. Every token is still attended to.
        drawn: what `draw` returned, or None to draw here.

    Returns:
        (batch, tokens, channels), or (batch, 1, channels) for the first token.
    """

    def __init__(self, num_heads, dropout_rate=0.0, relative_positions=False, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.relative_positions = relative_positions
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape):
        _, tokens, channels = input_shape
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
        if self.relative_positions:
            self.relative_position = RelativePosition(
                dtype=self.dtype_policy, name="relative_position"
            )
            self.relative_position.build((None, self.num_heads, tokens, self.head_size))

    def draw(self, training):
        """Returns the randomness of one forward pass, a dict of seeds."""
        return self.dropout.draw(training)

    def _is_plain(self):
        """Whether queries, keys and values are products with kernels and nothing else."""
        projections = (self.query, self.key, self.value)
        return not any(dense.quantization_mode or dense.lora_enabled for dense in projections)

    def _project(self, dense, tokens, axes):
        """Projects tokens and moves the heads to `axes` of (batch, token, head, channel)."""
        _, length, channels = ops.shape(tokens)
        flat = dense(ops.reshape(tokens, (-1, channels)))
        heads = ops.reshape(flat, (-1, length, self.num_heads, self.head_size))
        return ops.transpose(heads, axes)

    def probabilities(self, tokens, first_token_only=False):
        """Returns A of equation 6, (batch, heads, queries, tokens), in float32."""
        queries = tokens[:, :1] if first_token_only else tokens
        query = self._project(self.query, queries, (0, 2, 1, 3)) * self.scale
        key = self._project(self.key, tokens, (0, 2, 1, 3))
        # TensorFlow's products take the second transposition for nothing.
        logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        if self.relative_positions:
            logits = logits + self.relative_position(query)
        return ops.softmax(ops.cast(logits, "float32"), axis=-1)

    def rows(self, tokens, first_token_only=False, drawn=None):
        """Returns what the layer returns, as rows: (batch * queries, channels)."""
        kernels = substitute()
        if kernels and not self.relative_positions and self._is_plain():
            return self.out(kernels.attention(self, tokens, first_token_only))
        drawn = {} if drawn is None else drawn
        probabilities = ops.cast(self.probabilities(tokens, first_token_only), self.compute_dtype)
        value = self._project(self.value, tokens, (0, 2, 1, 3))
        heads = ops.matmul(self.dropout.apply(probabilities, drawn), value)
        heads = ops.transpose(heads, (0, 2, 1, 3))
        return self.out(ops.reshape(heads, (-1, tokens.shape[-1])))

    def call(self, tokens, training=False, first_token_only=False, drawn=None):
        drawn = self.draw(training) if drawn is None else drawn
        rows = self.rows(tokens, first_token_only, drawn)
        _, length, channels = ops.shape(tokens)
        return ops.reshape(rows, (-1, 1 if first_token_only else length, channels))

    def compute_output_spec(self, tokens, training=False, first_token_only=False, drawn=None):
        batch, length, channels = tokens.shape
        shape = (batch, 1 if first_token_only else length, channels)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "dropout_rate": self.dropout_rate,
            "relative_positions": self.relative_positions,
        }
