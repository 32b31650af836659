"""Register tokens (Darcet et al., 2023, "Vision Transformers Need Registers")."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class RegisterTokens(keras.layers.Layer):
    """Inserts learned tokens, initially almost zero, that have no position and no output.

    Args:
        num_tokens: int, how many.
        start: int, the tokens before them: 1 with a class token, else 0.

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        (batch, tokens + num_tokens, channels).
    """

    def __init__(self, num_tokens: int, start: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens
        self.start = start

    def build(self, input_shape: tuple) -> None:
        self.registers = self.add_weight(
            name="registers",
            shape=(1, self.num_tokens, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=1e-6),
        )

    def call(self, tokens: Tensor) -> Tensor:
        shape = (ops.shape(tokens)[0], self.num_tokens, tokens.shape[-1])
        registers = ops.cast(ops.broadcast_to(self.registers, shape), tokens.dtype)
        return ops.concatenate(
            [tokens[:, : self.start], registers, tokens[:, self.start :]], axis=1
        )

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, tokens, channels = input_shape
        return batch, None if tokens is None else tokens + self.num_tokens, channels

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_tokens": self.num_tokens, "start": self.start}
