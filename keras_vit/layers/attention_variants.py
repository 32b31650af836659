"""Attention with relative positions (appendix D.3), by a fused kernel, and as pooling."""

from typing import Any

import keras
from keras import ops

from keras_vit.backends.by_backend import fused_attention
from keras_vit.initializers import RandomNormal, glorot_uniform
from keras_vit.layers.attention import MultiHeadAttention, MultiHeadSelfAttention
from keras_vit.layers.mlp import MLP
from keras_vit.layers.normalization import LayerNormalization
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativeSelfAttention(MultiHeadSelfAttention):
    """MSA whose queries also meet a learned embedding of their distance to each key.

    Adds q·R[p_q - p_k] to the logits, where the table R has one row for each of the 2T - 1 signed
    one-dimensional distances between T tokens. It is shared by the heads of a layer.

    Arguments and call as for `MultiHeadSelfAttention`; of a `context`, the T tokens, `tokens` is
    the first alone.
    """

    def build(self, input_shape: tuple) -> None:
        super().build(input_shape)
        self.length = input_shape[1]
        if self.length is None:
            raise ValueError(
                "Relative positions need a fixed number of tokens. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        shape, initializer = (2 * self.length - 1, self.head_size), RandomNormal(stddev=0.02)
        self.relative_embedding = self.add_weight(
            name="relative_embedding", shape=shape, initializer=initializer
        )

    def logits(self, query: Tensor, key: Tensor) -> Tensor:
        return super().logits(query, key) + self.relative_logits(query)

    def relative_logits(self, query: Tensor) -> Tensor:
        """Returns what is added to the logits, (batch, heads, queries, T), as `logits` takes it."""
        tokens, heads = self.length, query.shape[1]
        # Rows reversed, so that column k - q + T - 1 of a query's row is key k.
        table = ops.flip(ops.cast(self.relative_embedding, query.dtype), axis=0)
        by_distance = ops.matmul(query, ops.transpose(table))
        if query.shape[2] == 1:
            return by_distance[..., tokens - 1 :]
        # Rows read with a stride that is one too short shift by their query's position: a gather
        # without indices, which TPUs lack.
        flat = ops.reshape(by_distance, (-1, heads, tokens * (2 * tokens - 1)))
        flat = flat[..., tokens - 1 : tokens - 1 + tokens * (2 * tokens - 2)]
        rows = ops.reshape(flat, (-1, heads, tokens, 2 * tokens - 2))
        return rows[..., :tokens]


@keras.saving.register_keras_serializable(package="keras_vit")
class FusedSelfAttention(MultiHeadSelfAttention):
    """MSA by a fused kernel where the machine has one and nothing needs the probabilities.

    That is in 16 bits on NVIDIA's GPUs under JAX; not if `tokens` are the first of a `context`, nor
    in training with dropout of the probabilities. Elsewhere it is MSA.

    Arguments and call as for `MultiHeadSelfAttention`.
    """

    def call(
        self,
        tokens: Tensor,
        context: Tensor | None = None,
        rotary_grid: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        kernel = fused_attention(self.compute_dtype, self.head_size)
        if kernel is None or context is not None or (training and self.dropout_rate > 0):
            return super().call(tokens, context, rotary_grid, training)
        query, key = self.query_and_key(tokens, tokens, rotary_grid)
        return self.combine_heads(kernel(query, key, self.project(self.value, tokens)))


# An encoder block chooses one by name.
ATTENTIONS = {
    "plain": MultiHeadSelfAttention,
    "relative": RelativeSelfAttention,
    "fused": FusedSelfAttention,
}


@keras.saving.register_keras_serializable(package="keras_vit")
class MAPHead(MultiHeadAttention):
    """Multi-head attention pooling, big_vision's alternative to the class token.

    x = MHA(probe, tokens); x + MLP(LN(x)). No residual around the attention.

    Args:
        num_heads: int.
        mlp_dim: int, hidden width of the MLP.
        gelu: "tanh" or "erf".
        layer_norm_epsilon: float.

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        (batch, channels).
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        gelu: str = "tanh",
        layer_norm_epsilon: float = 1e-6,
        **kwargs: Any,
    ):
        super().__init__(num_heads, **kwargs)
        self.keep(locals())
        self.norm = self.inner(LayerNormalization, "norm", layer_norm_epsilon)
        self.mlp = self.inner(MLP, "mlp", mlp_dim, gelu=gelu)

    def build(self, input_shape: tuple) -> None:
        shape = (1, 1, input_shape[-1])
        self.probe = self.add_weight(name="probe", shape=shape, initializer=glorot_uniform())
        super().build(input_shape)
        self.norm.build(shape)
        self.mlp.build(shape)

    def call(self, tokens: Tensor) -> Tensor:
        x = self.weighted_values(self.probabilities(self.probe, tokens), tokens)
        return (x + self.mlp(self.norm(x)))[:, 0]

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape[0], input_shape[2]
