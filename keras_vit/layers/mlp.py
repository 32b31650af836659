"""The two-layer perceptron of an encoder block (equation 3)."""

import keras
from keras import ops

from keras_vit.layers.dropout import Dropout
from keras_vit.layers.gelu import GELU_FLAVOURS, TRAINED_GELU_FLAVOURS


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
        drawn: what `draw` returned, or None to draw here.

    Returns:
        A tensor like `tokens`.
    """

    def __init__(self, mlp_dim, dropout_rate=0.0, gelu="tanh", **kwargs):
        super().__init__(**kwargs)
        if gelu not in GELU_FLAVOURS:
            raise ValueError(
                f"`gelu` must be one of {tuple(GELU_FLAVOURS)}. Received: gelu={gelu!r}"
            )
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.gelu = gelu
        self.hidden_dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="hidden_dropout")
        self.output_dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="output_dropout")

    def build(self, input_shape):
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

    def draw(self, training):
        """Returns the randomness of one forward pass, a dict of dicts of seeds."""
        return {
            "hidden": self.hidden_dropout.draw(training),
            "output": self.output_dropout.draw(training),
        }

    def call(self, tokens, training=False, drawn=None):
        drawn = self.draw(training) if drawn is None else drawn
        rows = tokens
        if len(tokens.shape) > 2:
            rows = ops.reshape(tokens, (-1, tokens.shape[-1]))
        flavours = TRAINED_GELU_FLAVOURS if training else GELU_FLAVOURS
        rows = flavours[self.gelu](self.hidden_dense(rows))
        rows = self.hidden_dropout.apply(rows, drawn["hidden"])
        rows = self.output_dense(rows)
        rows = self.output_dropout.apply(rows, drawn["output"])
        return rows if len(tokens.shape) == 2 else ops.reshape(rows, ops.shape(tokens))

    def compute_output_spec(self, tokens, training=False, drawn=None):
        return keras.KerasTensor(tokens.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "mlp_dim": self.mlp_dim,
            "dropout_rate": self.dropout_rate,
            "gelu": self.gelu,
        }
