"""Position embeddings (equation 1)."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.interpolation import resized_positions
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding(Layer):
    """E_pos of equation 1: adds one learned vector to each token, in raster order.

    Subclasses have other tables.

    Args:
        grid_size: (rows, columns) of patches.
        class_token: bool, whether the first token is the class token; or int, of two such tokens.

    Call arguments:
        tokens: (batch, tokens, channels).
        stem: optional (batch, rows, columns, channels) tensor of any grid, for which the
            embedding is then made: learned ones are interpolated, corners aligned.
        centers: bool, whether they are interpolated between the patches' centers instead.

    Returns:
        `tokens` plus the embedding of each position.
    """

    def __init__(self, grid_size: tuple[int, int], class_token: bool | int = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.grid_size = (grid_size[0], grid_size[1])
        self.class_token = class_token

    def build(self, input_shape: tuple) -> None:
        shape = (1, math.prod(self.grid_size) + int(self.class_token), input_shape[-1])
        initializer = RandomNormal(stddev=0.02)
        self.embedding = self.add_weight(name="embedding", shape=shape, initializer=initializer)

    def table(self) -> Tensor:
        """Returns the embedding, (1, tokens, channels), those of class tokens first."""
        return self.embedding

    def resized_table(
        self, rows: int | Tensor, columns: int | Tensor, centers: bool = False
    ) -> Tensor:
        """Returns the embedding of another grid, (1, tokens, channels) in float32."""
        return resized_positions(self.table(), self.grid_size, (rows, columns), centers)

    def call(self, tokens: Tensor, stem: Tensor | None = None, centers: bool = False) -> Tensor:
        table = self.table()
        if stem is not None:
            rows, columns = ops.shape(stem)[1:3]
            table = self.resized_table(rows, columns, centers)
        return tokens + ops.cast(table, self.compute_dtype)
