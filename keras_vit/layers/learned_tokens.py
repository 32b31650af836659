"""Learned tokens without position, which the paper does not have."""

from typing import Any

import keras
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedTokens(Layer):
    """Inserts learned tokens that have no position.

    Registers (Darcet et al., 2023), initially almost zero, or the classes of a `Segmenter`.

    Args:
        num_tokens: int, how many.
        start: int, the tokens before them: 1 with a class token, else 0. None: all tokens.
        stddev: float, of their initial normal distribution.

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        (batch, tokens + num_tokens, channels).
    """

    def __init__(self, num_tokens: int, start: int | None, stddev: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def build(self, input_shape: tuple) -> None:
        shape, initializer = (1, self.num_tokens, input_shape[-1]), RandomNormal(stddev=self.stddev)
        self.learned = self.add_weight(name="learned", shape=shape, initializer=initializer)

    def call(self, tokens: Tensor) -> Tensor:
        batch, _, channels = ops.shape(tokens)
        learned = ops.broadcast_to(self.learned, (batch, self.num_tokens, channels))
        learned = ops.cast(learned, tokens.dtype)
        if self.start is None:
            return ops.concatenate([tokens, learned], axis=1)
        before = [tokens[:, : self.start]] if self.start else []
        after = tokens[:, self.start :] if self.start else tokens
        return ops.concatenate([*before, learned, after], axis=1)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, tokens, channels = input_shape
        return batch, None if tokens is None else tokens + self.num_tokens, channels
