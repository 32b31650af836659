"""Matrices that resample an axis of an array: new values = matrix @ old values."""

import math

import numpy as np
from keras import ops

from keras_vit.type_hints import Tensor


def _linear(positions, source, width=1.0):
    """Returns the weights of the samples at `positions`; repeats the ends beyond them."""
    weights = np.maximum(0, 1 - np.abs(positions[:, None] - np.arange(source)) / width)
    return weights / weights.sum(1, keepdims=True)


def corner_weights(source: int, target: int | Tensor) -> np.ndarray | Tensor:
    """Returns the (target, source) matrix of linear interpolation with aligned corners.

    Sample i of `target` lies at i (source - 1) / (target - 1): what `scipy.ndimage.zoom(order=1)`
    does in the original code, without that function's defect of zeroing the last sample when
    rounding overshoots. It is float64, or float32 in the graph of a scalar integer tensor `target`.
    """
    if isinstance(target, int | np.integer):
        return _linear(np.arange(target) * ((source - 1) / max(target - 1, 1)), source)
    steps = ops.maximum(ops.cast(target, "float32") - 1, 1)
    positions = ops.cast(ops.arange(target), "float32") * (source - 1) / steps
    return _linear_in_graph(ops.minimum(positions, float(source - 1)), source)


def _linear_in_graph(positions, source):
    samples = ops.arange(source, dtype="float32")
    return ops.relu(1 - ops.abs(positions[:, None] - samples[None, :]))


def half_pixel_weights(
    source: int | Tensor, target: int | Tensor, antialias: bool = False
) -> np.ndarray | Tensor:
    """Returns the (target, source) matrix of linear interpolation between pixel centers.

    Sample i of `target` lies at (i + 1/2) source / target - 1/2. With `antialias`, shrinking
    averages all samples that a new one stands for. It is float64, or float32 in the graph of a
    scalar integer tensor `target`, where `source` may be one too, without `antialias`.
    """
    if not isinstance(target, int | np.integer):
        old, new = (ops.cast(size, "float32") for size in (source, target))
        centers = (ops.cast(ops.arange(target), "float32") + 0.5) * old / new - 0.5
        return _linear_in_graph(ops.clip(centers, 0.0, old - 1), source)
    scale = source / target
    positions = (np.arange(target) + 0.5) * scale - 0.5
    return _linear(positions, source, max(scale, 1.0) if antialias else 1.0)


def area_weights(source: int, target: int) -> np.ndarray:
    """Returns the (target, source) float64 matrix of averages: the part of each old in each new."""
    scale = source / target
    start, sample = np.arange(target)[:, None] * scale, np.arange(source)
    overlap = np.minimum(start + scale, sample + 1) - np.maximum(start, sample)
    return overlap.clip(0) / scale


def resized_positions(
    table: Tensor,
    grid_size: tuple[int, int],
    target: tuple[int | Tensor, int | Tensor],
    centers: bool = False,
) -> Tensor:
    """Interpolates a table of position embeddings from one (rows, columns) to another.

    The table is (1, tokens, channels) float, row by row, perhaps after the class token's entry,
    which is left as it is; `target` are ints or scalar integer tensors. Corners are aligned, or
    samples lie between `centers`. Returns float32.
    """
    first, channels = table.shape[1] - math.prod(grid_size), table.shape[-1]
    table = ops.cast(table, "float32")
    by_row, by_column = (
        ops.cast((half_pixel_weights if centers else corner_weights)(*sides), "float32")
        for sides in zip(grid_size, target, strict=True)
    )
    grid = ops.reshape(table[0, first:], (*grid_size, channels))
    grid = ops.einsum("ij,jkc->ikc", by_row, grid)
    grid = ops.einsum("ij,kjc->kic", by_column, grid)
    grid = ops.reshape(grid, (1, target[0] * target[1], channels))
    return ops.concatenate([table[:, :first], grid], axis=1)
