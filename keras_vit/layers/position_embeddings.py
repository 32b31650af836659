"""Position embeddings (equation 1)."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.interpolation import corner_weights
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding(Layer):
    """E_pos of equation 1: adds one learned vector to each token, in raster order.

    Subclasses have other tables.

    Args:
        grid_size: (rows, columns) of patches.
        class_token: bool, whether the first token is the class token.

    Call arguments:
        tokens: (batch, tokens, channels).
        stem: optional (batch, rows, columns, channels) tensor of any grid, for which the
            embedding is then made: learned ones are interpolated, corners aligned.

    Returns:
        `tokens` plus the embedding of each position.
    """

    def __init__(self, grid_size: tuple[int, int], class_token: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.grid_size = (grid_size[0], grid_size[1])
        self.class_token = class_token

    def build(self, input_shape: tuple) -> None:
        shape = (1, math.prod(self.grid_size) + int(self.class_token), input_shape[-1])
        initializer = RandomNormal(stddev=0.02)
        self.embedding = self.add_weight(name="embedding", shape=shape, initializer=initializer)

    def table(self) -> Tensor:
        """Returns the embedding, (1, tokens, channels), the class token's first."""
        return self.embedding

    def resized_table(self, rows: int | Tensor, columns: int | Tensor) -> Tensor:
        """Returns the embedding of another grid, (1, tokens, channels) in float32."""
        return resized(self.table(), self.grid_size, (rows, columns))

    def call(self, tokens: Tensor, stem: Tensor | None = None) -> Tensor:
        table = self.table() if stem is None else self.resized_table(*ops.shape(stem)[1:3])
        return tokens + ops.cast(table, self.compute_dtype)


def resized(
    table: Tensor, grid_size: tuple[int, int], target: tuple[int | Tensor, int | Tensor]
) -> Tensor:
    """Interpolates a table of position embeddings from one (rows, columns) to another.

    The table is (1, tokens, channels) float, row by row, perhaps after the class token's entry,
    which is left as it is; `target` are ints or scalar integer tensors. Returns float32.
    """
    first, channels = table.shape[1] - math.prod(grid_size), table.shape[-1]
    table = ops.cast(table, "float32")
    by_row, by_column = (
        ops.cast(corner_weights(*sides), "float32") for sides in zip(grid_size, target, strict=True)
    )
    grid = ops.reshape(table[0, first:], (*grid_size, channels))
    grid = ops.einsum("ij,jkc->ikc", by_row, grid)
    grid = ops.einsum("ij,kjc->kic", by_column, grid)
    grid = ops.reshape(grid, (1, target[0] * target[1], channels))
    return ops.concatenate([table[:, :first], grid], axis=1)
