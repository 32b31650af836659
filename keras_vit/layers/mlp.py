"""The two-layer perceptron of an encoder block (equation 3)."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.dropout import Dropout
from keras_vit.layers.gelu import GELU_FLAVORS, TRAINED_GELU_FLAVORS
from keras_vit.layers.token_rows import token_rows
from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(keras.layers.Layer):
    """Dense, GELU, dense, each followed by dropout.

    Args:
        mlp_dim: int, the width of the hidden layer.
        dropout_rate: float.
        gelu: "tanh", the approximation that the original uses, or "erf", the
            exact function that timm, Hugging Face and keras-hub use. They differ
            by up to 4.7e-4.

    Call arguments:
        tokens: (..., channels), for example (batch, tokens, channels).
        training: bool.

    Returns:
        A tensor like `tokens`.
    """

    def __init__(self, mlp_dim: int, dropout_rate: float = 0.0, gelu: str = "tanh", **kwargs: Any):
        super().__init__(**kwargs)
        if gelu not in GELU_FLAVORS:
            raise ValueError(
                f"`gelu` must be one of {tuple(GELU_FLAVORS)}. Received: gelu={gelu!r}"
            )
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.gelu = gelu
        self.hidden_dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="hidden_dropout")
        self.output_dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="output_dropout")

    def build(self, input_shape: tuple) -> None:
        channels = input_shape[-1]
        self.hidden_dense = self._dense(self.mlp_dim, "hidden_dense")
        self.hidden_dense.build((None, channels))
        self.output_dense = self._dense(channels, "output_dense")
        self.output_dense.build((None, self.mlp_dim))

    def _dense(self, units, name):
        return keras.layers.Dense(
            units,
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            dtype=self.dtype_policy,
            name=name,
        )

    def call(self, tokens: Tensor, training: bool = False) -> Tensor:
        gelu = (TRAINED_GELU_FLAVORS if training else GELU_FLAVORS)[self.gelu]
        x = gelu(self.hidden_dense(token_rows(tokens, tokens.shape[-1])))
        x = self.hidden_dropout(x, training=training)
        x = self.output_dense(x)
        x = self.output_dropout(x, training=training)
        return ops.reshape(x, ops.shape(tokens))

    def compute_output_spec(self, tokens: Tensor, training: bool = False) -> keras.KerasTensor:
        return keras.KerasTensor(tokens.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "mlp_dim": self.mlp_dim,
            "dropout_rate": self.dropout_rate,
            "gelu": self.gelu,
        }
