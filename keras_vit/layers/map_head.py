"""Multi-head attention pooling, big_vision's alternative to the class token."""

from typing import Any

import keras

from keras_vit.initializers import glorot_uniform
from keras_vit.layers.attention import MultiHeadAttention
from keras_vit.layers.mlp import MLP
from keras_vit.layers.normalization import LayerNormalization
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class MAPHead(MultiHeadAttention):
    """x = MHA(probe, tokens); x + MLP(LN(x)). No residual around the attention.

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
        self.mlp_dim = mlp_dim
        self.gelu = gelu
        self.layer_norm_epsilon = layer_norm_epsilon
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
