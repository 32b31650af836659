"""One block of the Transformer encoder (equations 2 and 3)."""

from typing import Any

import keras

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.layer_normalization import LayerNormalization
from keras_vit.layers.mlp import MLP
from keras_vit.layers.remat import remat
from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(keras.layers.Layer):
    """z' = MSA(LN(z)) + z, then z = MLP(LN(z')) + z'.

    Args:
        num_heads: int, attention heads.
        mlp_dim: int, hidden width of the MLP.
        dropout_rate: float, dropout after the attention's projection and after
            both dense layers of the MLP.
        attention_dropout_rate: float, dropout of the attention probabilities.
        stochastic_depth_rate: float, probability that an example skips a branch.
        gelu: "tanh" or "erf".
        layer_norm_epsilon: float.
        relative_positions: bool, see `MultiHeadSelfAttention`.
        flash_attention: bool, see `MultiHeadSelfAttention`.
        remat: bool, whether training recomputes the block's activations in the
            backward pass instead of keeping them.

    Call arguments:
        tokens: (batch, tokens, channels).
        training: bool.
        first_token_only: bool, whether only the first token's result is wanted.
            It is computed exactly, at the cost of keys and values alone for the
            other tokens.

    Returns:
        A tensor like `tokens`, or (batch, 1, channels) for the first token.
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
        relative_positions: bool = False,
        flash_attention: bool = False,
        remat: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.gelu = gelu
        self.layer_norm_epsilon = layer_norm_epsilon
        self.relative_positions = relative_positions
        self.flash_attention = flash_attention
        self.remat = remat

        policy = {"dtype": self.dtype_policy}
        self.attention_norm = LayerNormalization(
            layer_norm_epsilon, name="attention_norm", **policy
        )
        self.attention = MultiHeadSelfAttention(
            num_heads,
            attention_dropout_rate,
            relative_positions,
            flash_attention,
            name="attention",
            **policy,
        )
        self.attention_dropout = Dropout(dropout_rate, name="attention_dropout", **policy)
        self.mlp_norm = LayerNormalization(layer_norm_epsilon, name="mlp_norm", **policy)
        self.mlp = MLP(mlp_dim, dropout_rate, gelu, name="mlp", **policy)
        self.attention_depth = StochasticDepth(
            stochastic_depth_rate, name="attention_depth", **policy
        )
        self.mlp_depth = StochasticDepth(stochastic_depth_rate, name="mlp_depth", **policy)

    def build(self, input_shape: tuple) -> None:
        for layer in (self.attention_norm, self.attention, self.mlp_norm, self.mlp):
            layer.build(input_shape)

    def call(
        self, tokens: Tensor, training: bool = False, first_token_only: bool = False
    ) -> Tensor:
        def equations(z):
            x = self.attention_norm(z)
            x = self.attention(x, training=training, first_token_only=first_token_only)
            x = self.attention_dropout(x, training=training)
            x = self.attention_depth(x, training=training)
            z = x + (z[:, :1] if first_token_only else z)
            x = self.mlp_norm(z)
            x = self.mlp(x, training=training)
            x = self.mlp_depth(x, training=training)
            return x + z

        return (remat(self, equations) if self.remat and training else equations)(tokens)

    def attention_probabilities(self, tokens: Tensor) -> Tensor:
        """Returns this block's attention weights, (batch, heads, tokens, tokens), float32.

        `tokens` is the block's input, (batch, tokens, channels).
        """
        return self.attention.probabilities(self.attention_norm(tokens))

    def compute_output_spec(
        self, tokens: Tensor, training: bool = False, first_token_only: bool = False
    ) -> keras.KerasTensor:
        batch, length, channels = tokens.shape
        shape = (batch, 1 if first_token_only else length, channels)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "stochastic_depth_rate": self.stochastic_depth_rate,
            "gelu": self.gelu,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "relative_positions": self.relative_positions,
            "flash_attention": self.flash_attention,
            "remat": self.remat,
        }
