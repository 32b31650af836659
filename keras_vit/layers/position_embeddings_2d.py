"""The other position embeddings that are added (appendix D.3): two-dimensional and fixed."""

import keras
import numpy as np
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.layers.position_embeddings import PositionEmbedding
from keras_vit.type_hints import Tensor


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
