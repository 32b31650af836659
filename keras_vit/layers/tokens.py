"""Tokens beside those of the patches: the class token (equations 1 and 4) and registers."""

from typing import Any

import keras
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


def _inserted(tokens, learned, start):
    """Returns `tokens` with `learned`, (1, number, channels), inserted at `start`."""
    shape = (ops.shape(tokens)[0], *learned.shape[1:])
    learned = ops.cast(ops.broadcast_to(learned, shape), tokens.dtype)
    before = [tokens[:, :start]] if start else []
    return ops.concatenate([*before, learned, tokens[:, start:] if start else tokens], axis=1)


def _lengthened(shape, number):
    batch, tokens, channels = shape
    return batch, None if tokens is None else tokens + number, channels


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(Layer):
    """Prepends x_class, one learned token that is initially zero, to every sequence (equation 1).

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        (batch, 1 + tokens, channels).
    """

    def build(self, input_shape: tuple) -> None:
        shape = (1, 1, input_shape[-1])
        self.token = self.add_weight(name="token", shape=shape, initializer="zeros")

    def call(self, tokens: Tensor) -> Tensor:
        return _inserted(tokens, self.token, 0)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return _lengthened(input_shape, 1)


@keras.saving.register_keras_serializable(package="keras_vit")
class FirstToken(Layer):
    """Picks the class token (equation 4).

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        (batch, channels), the first token.
    """

    def call(self, tokens: Tensor) -> Tensor:
        # A slice and a reshape: TFLite's delegates do not take an index that drops an axis.
        return ops.reshape(tokens[:, :1], (-1, tokens.shape[-1]))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape[0], input_shape[2]


@keras.saving.register_keras_serializable(package="keras_vit")
class RegisterTokens(Layer):
    """Inserts learned tokens that have no position and no output (Darcet et al., 2023).

    Initially they are almost zero.

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
        shape, initializer = (1, self.num_tokens, input_shape[-1]), RandomNormal(stddev=1e-6)
        self.registers = self.add_weight(name="registers", shape=shape, initializer=initializer)

    def call(self, tokens: Tensor) -> Tensor:
        return _inserted(tokens, self.registers, self.start)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return _lengthened(input_shape, self.num_tokens)
