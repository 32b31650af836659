"""The perceptrons of an encoder block (equation 3)."""

from typing import Any

import keras
from keras import ops

from keras_vit.backends.by_backend import token_rows
from keras_vit.backends.gelu import GELU_FLAVORS, TRAINED_GELU_FLAVORS
from keras_vit.initializers import RandomNormal, glorot_uniform
from keras_vit.layers.base import Layer
from keras_vit.layers.dropout import Dropout
from keras_vit.name_suggestions import require_one_of
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(Layer):
    """Dense, GELU, dense, each followed by dropout.

    Args:
        mlp_dim: int, the width of the hidden layer.
        dropout_rate: float.
        gelu: "tanh", the approximation that the original uses, or "erf", the exact function that
            timm, Hugging Face and keras-hub use. They differ by up to 4.7e-4.

    Call arguments:
        tokens: (..., channels), for example (batch, tokens, channels).
        training: bool.

    Returns:
        A tensor like `tokens`.
    """

    def __init__(self, mlp_dim: int, dropout_rate: float = 0.0, gelu: str = "tanh", **kwargs: Any):
        super().__init__(**kwargs)
        require_one_of("gelu", gelu, GELU_FLAVORS)
        self.keep(locals())
        self.hidden_dropout = self.inner(Dropout, "hidden_dropout", dropout_rate)
        self.output_dropout = self.inner(Dropout, "output_dropout", dropout_rate)

    def build(self, input_shape: tuple) -> None:
        channels = input_shape[-1]
        self.hidden_dense = self._dense("hidden_dense", channels, self.mlp_dim)
        self.output_dense = self._dense("output_dense", self.mlp_dim, channels)

    def _dense(self, name, inputs, units):
        initial = {"kernel_initializer": glorot_uniform()}
        initial["bias_initializer"] = RandomNormal(stddev=1e-6)
        return self.inner(keras.layers.Dense, name, units, shape=(None, inputs), **initial)

    def call(self, tokens: Tensor, training: bool = False) -> Tensor:
        x = self.hidden(token_rows(tokens, tokens.shape[-1]), training)
        x = self.hidden_dropout(x, training=training)
        x = self.output_dropout(self.output_dense(x), training=training)
        return ops.reshape(x, ops.shape(tokens))

    def hidden(self, rows: Tensor, training: bool) -> Tensor:
        """Returns the hidden layer, (..., mlp_dim), of tokens, (..., channels)."""
        gelu = (TRAINED_GELU_FLAVORS if training else GELU_FLAVORS)[self.gelu]
        return gelu(self.hidden_dense(rows))


@keras.saving.register_keras_serializable(package="keras_vit")
class SwiGLU(MLP):
    """Gated MLP, down(silu(gate(x)) * up(x)), with dropout as in `MLP` (Shazeer, 2020).

    Arguments and call as for `MLP`; `gelu` is not used.
    """

    def build(self, input_shape: tuple) -> None:
        channels = input_shape[-1]
        self.gate_dense = self._dense("gate_dense", channels, self.mlp_dim)
        self.up_dense = self._dense("up_dense", channels, self.mlp_dim)
        self.output_dense = self._dense("down_dense", self.mlp_dim, channels)

    def hidden(self, rows: Tensor, training: bool) -> Tensor:
        """Returns the gated layer, (..., mlp_dim), of tokens, (..., channels)."""
        gate = self.gate_dense(rows)
        # `keras.ops.silu` has a gradient of its own on TensorFlow, which SavedModels lose.
        return gate * ops.sigmoid(gate) * self.up_dense(rows)


# An encoder block chooses one by name.
MLPS = {"gelu": MLP, "swiglu": SwiGLU}
