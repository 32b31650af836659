"""Position embeddings: learned in one or two dimensions, or fixed (appendix D.3)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.typing import Tensor


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


class PositionEmbedding(keras.layers.Layer):
    """What all position embeddings that are added to tokens share.

    Args:
        grid_size: (rows, columns) of patches.
        class_token: bool, whether the first token is the class token.

    Call arguments:
        tokens: (batch, tokens, channels).
        stem: optional (batch, rows, columns, channels) tensor of any grid; then
            the embedding is interpolated to that grid, corners aligned.

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
        table = ops.cast(self.table(), "float32")
        prefix, grid = table[:, : int(self.class_token)], table[0, int(self.class_token) :]
        channels = table.shape[-1]
        grid = ops.reshape(grid, (*self.grid_size, channels))
        grid = ops.einsum("ij,jkc->ikc", corner_aligned(self.grid_size[0], rows), grid)
        grid = ops.einsum("ij,kjc->kic", corner_aligned(self.grid_size[1], columns), grid)
        grid = ops.reshape(grid, (1, rows * columns, channels))
        return ops.concatenate([prefix, grid], axis=1)

    def call(self, tokens: Tensor, stem: Tensor | None = None) -> Tensor:
        if stem is None:
            table = self.table()
        else:
            _, rows, columns, _ = ops.shape(stem)
            table = self.resized_table(rows, columns)
        return tokens + ops.cast(table, self.compute_dtype)

    def compute_output_spec(self, tokens: Tensor, stem: Tensor | None = None) -> keras.KerasTensor:
        return keras.KerasTensor(tokens.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "grid_size": self.grid_size,
            "class_token": self.class_token,
        }


def _normal():
    return keras.initializers.RandomNormal(stddev=0.02)


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedPosition1D(PositionEmbedding):
    """E_pos of equation 1: one learned vector for each token in raster order.

    Arguments and call as for `PositionEmbedding`.
    """

    def build(self, input_shape: tuple) -> None:
        tokens = int(np.prod(self.grid_size)) + int(self.class_token)
        self.embedding = self.add_weight(
            name="embedding", shape=(1, tokens, input_shape[-1]), initializer=_normal()
        )

    def table(self) -> Tensor:
        return self.embedding


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedPosition2D(PositionEmbedding):
    """Half of the channels learned for each column, half for each row (appendix D.3).

    A patch in row r and column c gets [X_c ; Y_r]; the class token has a vector
    of its own. Arguments and call as for `PositionEmbedding`.
    """

    def build(self, input_shape: tuple) -> None:
        channels = input_shape[-1]
        if channels % 2:
            raise ValueError(
                "Two-dimensional position embeddings need an even number of channels. "
                f"Received: channels={channels}"
            )
        rows, columns = self.grid_size
        half = channels // 2
        self.columns = self.add_weight(name="columns", shape=(columns, half), initializer=_normal())
        self.rows = self.add_weight(name="rows", shape=(rows, half), initializer=_normal())
        if self.class_token:
            self.first = self.add_weight(
                name="first", shape=(1, 1, channels), initializer=_normal()
            )

    def table(self) -> Tensor:
        rows, columns = self.grid_size
        half = self.rows.shape[-1]
        x = ops.broadcast_to(self.columns[None, :, :], (rows, columns, half))
        y = ops.broadcast_to(self.rows[:, None, :], (rows, columns, half))
        grid = ops.reshape(ops.concatenate([x, y], axis=-1), (1, rows * columns, 2 * half))
        return ops.concatenate([self.first, grid], axis=1) if self.class_token else grid


def sincos_2d(rows: int, columns: int, channels: int) -> np.ndarray:
    """Returns the fixed sine and cosine embedding, (rows * columns, channels) float32.

    Channels are [sin x, cos x, sin y, cos y] at the frequencies
    10000^(-i / (channels / 4 - 1)), with x the column and y the row.
    """
    if channels % 4 or channels < 8:
        raise ValueError(
            "Sine-cosine embeddings need a multiple of 4 channels, at least 8. "
            f"Received: channels={channels}"
        )
    y, x = np.mgrid[:rows, :columns]
    frequencies = 1 / 10000 ** (np.arange(channels // 4) / (channels // 4 - 1))
    x = x.reshape(-1, 1) * frequencies
    y = y.reshape(-1, 1) * frequencies
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], -1).astype("float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class SinCosPosition2D(PositionEmbedding):
    """Fixed sines and cosines of row and column; zero for the class token.

    Arguments and call as for `PositionEmbedding`.
    """

    def build(self, input_shape: tuple) -> None:
        rows, columns = self.grid_size
        grid = sincos_2d(rows, columns, input_shape[-1])
        prefix = np.zeros((int(self.class_token), grid.shape[1]), "float32")
        self.fixed = np.concatenate([prefix, grid])[None]

    def table(self) -> Tensor:
        return ops.convert_to_tensor(self.fixed)


POSITION_EMBEDDINGS = {
    "learned_1d": LearnedPosition1D,
    "learned_2d": LearnedPosition2D,
    "sincos_2d": SinCosPosition2D,
}
