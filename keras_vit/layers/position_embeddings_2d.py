"""Position embeddings in two dimensions: learned, fixed (appendix D.3), and rotary.

The rotary ones turn queries and keys, as in DINOv3 (Siméoni et al., 2025).
"""

import functools
import math

import keras
import numpy as np
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.layers.position_embeddings import PositionEmbedding
from keras_vit.type_hints import Tensor

THETA = 100.0  # of the rotary ones


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedPosition2D(PositionEmbedding):
    """Half of the channels learned for each column, half for each row.

    A patch in row r and column c gets [X_c ; Y_r]; a class token has a vector
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
        self.columns = self._learned("columns", (columns, channels // 2))
        self.rows = self._learned("rows", (rows, channels // 2))
        if self.class_token:
            self.first = self._learned("first", (1, int(self.class_token), channels))

    def _learned(self, name, shape):
        return self.add_weight(name=name, shape=shape, initializer=RandomNormal(stddev=0.02))

    def table(self) -> Tensor:
        rows, columns = self.grid_size
        half = self.rows.shape[-1]
        x = ops.broadcast_to(self.columns[None, :, :], (rows, columns, half))
        y = ops.broadcast_to(self.rows[:, None, :], (rows, columns, half))
        grid = ops.reshape(ops.concatenate([x, y], axis=-1), (1, rows * columns, 2 * half))
        return ops.concatenate([self.first, grid], axis=1) if self.class_token else grid


def sincos_2d(rows: int | Tensor, columns: int | Tensor, channels: int) -> np.ndarray | Tensor:
    """Returns the fixed sine and cosine embedding, (rows * columns, channels) float32.

    Channels are [sin x, cos x, sin y, cos y] at the frequencies
    10000^(-i / (channels / 4 - 1)), with x the column and y the row. Of rows and columns that are
    scalar integer tensors, the table is computed in the graph.
    """
    if channels % 4 or channels < 8:
        raise ValueError(
            "Sine-cosine embeddings need a multiple of 4 channels, at least 8. "
            f"Received: channels={channels}"
        )
    frequencies = 1 / 10000 ** (np.arange(channels // 4) / (channels // 4 - 1))
    if all(isinstance(each, int | np.integer) for each in (rows, columns)):
        y, x = np.mgrid[:rows, :columns].reshape(2, -1, 1) * frequencies
        return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], -1).astype("float32")
    places = ops.arange(rows * columns)[:, None]
    x = ops.cast(places % columns, "float32") * frequencies
    y = ops.cast(places // columns, "float32") * frequencies
    return ops.concatenate([ops.sin(x), ops.cos(x), ops.sin(y), ops.cos(y)], -1)


@keras.saving.register_keras_serializable(package="keras_vit")
class SinCosPosition2D(PositionEmbedding):
    """Fixed sines and cosines of row and column; zero for the class token.

    Arguments and call as for `PositionEmbedding`.
    """

    def build(self, input_shape: tuple) -> None:
        rows, columns = self.grid_size
        self.channels = input_shape[-1]
        self.fixed = self._padded(sincos_2d(rows, columns, self.channels))

    def table(self) -> Tensor:
        return ops.convert_to_tensor(self.fixed)

    def resized_table(
        self, rows: int | Tensor, columns: int | Tensor, centers: bool = False
    ) -> Tensor:
        """Returns the embedding of another grid, as a model of that size has it."""
        return ops.convert_to_tensor(self._padded(sincos_2d(rows, columns, self.channels)))

    def _padded(self, grid):
        pad = np.pad if isinstance(grid, np.ndarray) else ops.pad
        return pad(grid, ((int(self.class_token), 0), (0, 0)))[None]


POSITION_EMBEDDINGS = {
    "learned_1d": PositionEmbedding,
    "learned_2d": LearnedPosition2D,
    "sincos_2d": SinCosPosition2D,
}


def rotation_tables(
    rows: int | Tensor, columns: int | Tensor, head_size: int, tokens: int | Tensor
) -> tuple[np.ndarray | Tensor, np.ndarray | Tensor]:
    """Returns cosines and sines of the angles of `tokens`, (tokens, head_size / 2) float32 each.

    The last rows * columns tokens are patches, in raster order; the angles of the others are 0. A
    patch's center lies at y and x in (-1, 1), of whatever grid; its angles are 2 pi times
    [y f_0, y f_1, ..., x f_0, x f_1, ...] with f_k = THETA^(-4 k / head_size). Of integer tensors
    the tables are computed in the graph.
    """
    if all(isinstance(each, int | np.integer) for each in (rows, columns, tokens)):
        return _constant_tables(rows, columns, head_size, tokens)
    places = ops.arange(tokens) - (tokens - rows * columns)
    angles = _angles(places, rows, columns, head_size, lambda x: ops.cast(x, "float32"))
    angles = ops.where(places[:, None] >= 0, ops.concatenate(angles, -1), 0.0)
    return ops.cos(angles), ops.sin(angles)


@functools.lru_cache(maxsize=32)  # every block of a model has the same
def _constant_tables(rows, columns, head_size, tokens):
    places = np.arange(tokens) - (tokens - rows * columns)
    angles = np.concatenate(_angles(places, rows, columns, head_size, np.float64), -1)
    angles[places < 0] = 0
    return np.cos(angles).astype("float32"), np.sin(angles).astype("float32")


def _angles(places, rows, columns, head_size, as_float):
    frequencies = 2 * math.pi * THETA ** (-4 * np.arange(head_size // 4) / head_size)
    y, x = places // columns, places % columns
    sides = [(as_float(2 * at + 1) / as_float(side) - 1) for at, side in ((y, rows), (x, columns))]
    return [side[:, None] * as_float(frequencies) for side in sides]


def rotated(heads: Tensor, tables: tuple[np.ndarray | Tensor, np.ndarray | Tensor]) -> Tensor:
    """Turns the pairs of channels c and c + head_size / 2 by each token's angles, in float32.

    Args:
        heads: (batch, heads, tokens, head_size), queries or keys.
        tables: as `rotation_tables` returns them, of these tokens or of more, these the first.

    Returns:
        A tensor like `heads`.
    """
    length, size = ops.shape(heads)[2:]
    cosine, sine = (ops.convert_to_tensor(table[:length]) for table in tables)
    x = ops.cast(heads, "float32")
    a, b = x[:, :, :, : size // 2], x[:, :, :, size // 2 :]
    turned = ops.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)
    return ops.cast(turned, heads.dtype)
