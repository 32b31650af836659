"""Rotary position embeddings in two dimensions, as DINOv3 has them (Siméoni et al., 2025)."""

import functools
import math

import numpy as np
from keras import ops

from keras_vit.type_hints import Tensor

THETA = 100.0


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
