"""Position embeddings that are added to the tokens (equation 1)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


class PositionEmbedding(Layer):
    """The base class of position embeddings that are added to tokens.

    Args:
        grid_size: (rows, columns) of patches.
        class_token: bool, whether the first token is the class token.

    Call arguments:
        tokens: (batch, tokens, channels).

    Returns:
        `tokens` plus the embedding of each position.
    """

    def __init__(self, grid_size: tuple[int, int], class_token: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.grid_size = tuple(grid_size)
        self.class_token = class_token

    def table(self) -> Tensor:
        """Returns the embedding, (1, tokens, channels), the class token's first."""
        raise NotImplementedError

    def call(self, tokens: Tensor) -> Tensor:
        return tokens + ops.cast(self.table(), self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedPosition1D(PositionEmbedding):
    """E_pos of equation 1: one learned vector for each token in raster order.

    Arguments and call as for `PositionEmbedding`.
    """

    def build(self, input_shape: tuple) -> None:
        tokens = int(np.prod(self.grid_size)) + int(self.class_token)
        shape, initializer = (1, tokens, input_shape[-1]), RandomNormal(stddev=0.02)
        self.embedding = self.add_weight(name="embedding", shape=shape, initializer=initializer)

    def table(self) -> Tensor:
        return self.embedding
