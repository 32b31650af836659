"""Position embeddings that are added to the tokens (equation 1)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


def corner_aligned(source: int, target: int | Tensor) -> Tensor:
    """Returns the (target, source) matrix of linear interpolation between aligned corners.

    Sample i of `target` lies at i * (source - 1) / (target - 1): what
    `scipy.ndimage.zoom(order=1)` does in the original code, without that
    function's defect of zeroing the last sample when rounding overshoots.
    `target` may be an int or a scalar integer tensor.
    """
    steps = ops.maximum(ops.cast(target, "float32") - 1, 1)
    position = ops.cast(ops.arange(target), "float32") * (source - 1) / steps
    position = ops.minimum(position, float(source - 1))
    distance = ops.abs(position[:, None] - ops.arange(source, dtype="float32")[None, :])
    return ops.relu(1 - distance)


class PositionEmbedding(Layer):
    """The base class of position embeddings that are added to tokens.

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
        self.grid_size = tuple(grid_size)
        self.class_token = class_token

    def table(self) -> Tensor:
        """Returns the embedding, (1, tokens, channels), the class token's first."""
        raise NotImplementedError

    def resized_table(self, rows: int | Tensor, columns: int | Tensor) -> Tensor:
        """Returns the embedding of another grid, (1, tokens, channels) in float32."""
        table, first = ops.cast(self.table(), "float32"), int(self.class_token)
        grid = ops.reshape(table[0, first:], (*self.grid_size, -1))
        grid = ops.einsum("ij,jkc->ikc", corner_aligned(self.grid_size[0], rows), grid)
        grid = ops.einsum("ij,kjc->kic", corner_aligned(self.grid_size[1], columns), grid)
        grid = ops.reshape(grid, (1, rows * columns, table.shape[-1]))
        return ops.concatenate([table[:, :first], grid], axis=1)

    def call(self, tokens: Tensor, stem: Tensor | None = None) -> Tensor:
        table = self.table() if stem is None else self.resized_table(*ops.shape(stem)[1:3])
        return tokens + ops.cast(table, self.compute_dtype)


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
