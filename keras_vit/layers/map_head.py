"""Multi-head attention pooling: a learned query gathers the tokens."""

from typing import Any

import keras

from keras_vit.layers.attention import MultiHeadAttention
from keras_vit.layers.layer_normalization import LayerNormalization
from keras_vit.layers.mlp import MLP
from keras_vit.typing import Tensor


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
        self.norm = LayerNormalization(layer_norm_epsilon, name="norm", dtype=self.dtype_policy)
        self.mlp = MLP(mlp_dim, gelu=gelu, name="mlp", dtype=self.dtype_policy)

    def build(self, input_shape: tuple) -> None:
        channels = input_shape[-1]
        self.probe = self.add_weight(
            name="probe", shape=(1, 1, channels), initializer="glorot_uniform"
        )
        super().build(input_shape)
        self.norm.build((None, 1, channels))
        self.mlp.build((None, 1, channels))

    def call(self, tokens: Tensor) -> Tensor:
        x = self.gather(self.probabilities(tokens, self.probe), tokens)
        return (x + self.mlp(self.norm(x)))[:, 0]

    def compute_output_spec(self, tokens: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((tokens.shape[0], tokens.shape[-1]), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "mlp_dim": self.mlp_dim,
            "gelu": self.gelu,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
