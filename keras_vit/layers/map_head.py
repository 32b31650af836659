"""Multi-head attention pooling: a learned query gathers the tokens."""

import keras
from keras import ops

from keras_vit.layers.layer_normalization import LayerNormalization
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class MAPHead(keras.layers.Layer):
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

    def __init__(self, num_heads, mlp_dim, gelu="tanh", layer_norm_epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.gelu = gelu
        self.layer_norm_epsilon = layer_norm_epsilon
        self.norm = LayerNormalization(layer_norm_epsilon, name="norm", dtype=self.dtype_policy)
        self.mlp = MLP(mlp_dim, gelu=gelu, name="mlp", dtype=self.dtype_policy)

    def build(self, input_shape):
        channels = input_shape[-1]
        self.head_size = channels // self.num_heads
        self.probe = self.add_weight(
            name="probe", shape=(1, 1, channels), initializer="glorot_uniform"
        )
        for name in ("query", "key", "value", "out"):
            dense = keras.layers.Dense(channels, dtype=self.dtype_policy, name=name)
            dense.build((None, channels))
            setattr(self, name, dense)
        self.norm.build((None, 1, channels))
        self.mlp.build((None, 1, channels))

    def _heads(self, flat, axes):
        _, length, _ = ops.shape(flat)
        return ops.transpose(ops.reshape(flat, (-1, length, self.num_heads, self.head_size)), axes)

    def call(self, tokens):
        query = self._heads(self.query(self.probe), (0, 2, 1, 3)) * self.head_size**-0.5
        logits = ops.matmul(query, self._heads(self.key(tokens), (0, 2, 3, 1)))
        probabilities = ops.softmax(ops.cast(logits, "float32"), axis=-1)
        value = self._heads(self.value(tokens), (0, 2, 1, 3))
        pooled = ops.matmul(ops.cast(probabilities, self.compute_dtype), value)
        pooled = ops.reshape(pooled, (-1, 1, self.num_heads * self.head_size))
        x = self.out(pooled)
        return (x + self.mlp(self.norm(x)))[:, 0]

    def compute_output_spec(self, tokens):
        return keras.KerasTensor((tokens.shape[0], tokens.shape[-1]), dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "gelu": self.gelu,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
