"""One block of the Transformer encoder (equations 2 and 3)."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.attention_variants import ATTENTIONS
from keras_vit.layers.base import Layer
from keras_vit.layers.dropout import Dropout, StochasticDepth, remat
from keras_vit.layers.mlp import MLPS
from keras_vit.layers.normalization import LayerNormalization
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(Layer):
    """z' = MSA(LN(z)) + z, then z = MLP(LN(z')) + z'.

    Args:
        num_heads: int, attention heads.
        mlp_dim: int, hidden width of the MLP.
        dropout_rate: float, after the attention's projection and both dense layers of the MLP.
        attention_dropout_rate: float, dropout of the attention probabilities.
        stochastic_depth_rate: float, probability that an example skips a branch.
        gelu: "tanh" or "erf".
        layer_norm_epsilon: float.
        attention_type: a name of `keras_vit.layers.attention_variants.ATTENTIONS`.
        remat: bool, whether training recomputes the block's activations instead of keeping them.
        mlp_type: a name of `keras_vit.layers.mlp.MLPS`.

    Call arguments:
        tokens: (batch, tokens, channels).
        context: (batch, all tokens, channels), if only the result of the first tokens is
            wanted: all tokens are attended to, and only `tokens` are computed.
        rotary_grid: as of `MultiHeadSelfAttention`.
        training: bool.

    Returns:
        A tensor like `tokens`.
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        stochastic_depth_rate: float = 0.0,
        gelu: str = "tanh",
        layer_norm_epsilon: float = 1e-6,
        attention_type: str = "plain",
        remat: bool = False,
        mlp_type: str = "gelu",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())

        inner = self.inner
        self.attention_norm = inner(LayerNormalization, "attention_norm", layer_norm_epsilon)
        msa = ATTENTIONS[attention_type]
        self.attention = inner(msa, "attention", num_heads, attention_dropout_rate)
        self.attention_dropout = inner(Dropout, "attention_dropout", dropout_rate)
        self.mlp_norm = inner(LayerNormalization, "mlp_norm", layer_norm_epsilon)
        self.mlp = inner(MLPS[mlp_type], "mlp", mlp_dim, dropout_rate, gelu)
        self.attention_depth = inner(StochasticDepth, "attention_depth", stochastic_depth_rate)
        self.mlp_depth = inner(StochasticDepth, "mlp_depth", stochastic_depth_rate)

    def build(self, input_shape: tuple) -> None:
        for layer in (self.attention_norm, self.attention, self.mlp_norm, self.mlp):
            layer.build(input_shape)

    def call(
        self,
        tokens: Tensor,
        context: Tensor | None = None,
        rotary_grid: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        def equations(z, context=None):
            x = self.attention_norm(z if context is None else context)
            x = (x,) if context is None else (x[:, : ops.shape(z)[1]], x)
            x = self.attention(*x, rotary_grid=rotary_grid, training=training)
            x = self.attention_dropout(x, training=training)
            z = self.attention_depth(x, training=training) + z
            x = self.mlp(self.mlp_norm(z), training=training)
            return self.mlp_depth(x, training=training) + z

        compute = remat(self, equations) if self.remat and training else equations
        return compute(tokens) if context is None else compute(tokens, context)
