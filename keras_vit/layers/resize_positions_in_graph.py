"""Position embeddings for another grid, in the graph of a model (section 3.2)."""

import math

from keras import ops

from keras_vit.type_hints import Tensor


def corner_aligned(source: int, target: int | Tensor) -> Tensor:
    """Returns the (target, source) matrix of linear interpolation between aligned corners.

    Sample i of `target`, an int or a scalar integer tensor, lies at i (source - 1) / (target - 1):
    what `scipy.ndimage.zoom(order=1)` does in the original code, without that function's defect of
    zeroing the last sample when rounding overshoots.
    """
    steps = ops.maximum(ops.cast(target, "float32") - 1, 1)
    position = ops.cast(ops.arange(target), "float32") * (source - 1) / steps
    position = ops.minimum(position, float(source - 1))
    distance = ops.abs(position[:, None] - ops.arange(source, dtype="float32")[None, :])
    return ops.relu(1 - distance)


def resized(
    table: Tensor, grid_size: tuple[int, int], target: tuple[int | Tensor, int | Tensor]
) -> Tensor:
    """Interpolates a table of position embeddings from one (rows, columns) to another.

    The table is (1, tokens, channels) float, row by row, perhaps after the class token's entry,
    which is left as it is; `target` are ints or scalar integer tensors. Returns float32.
    """
    first, channels = table.shape[1] - math.prod(grid_size), table.shape[-1]
    table = ops.cast(table, "float32")
    grid = ops.reshape(table[0, first:], (*grid_size, channels))
    grid = ops.einsum("ij,jkc->ikc", corner_aligned(grid_size[0], target[0]), grid)
    grid = ops.einsum("ij,kjc->kic", corner_aligned(grid_size[1], target[1]), grid)
    grid = ops.reshape(grid, (1, target[0] * target[1], channels))
    return ops.concatenate([table[:, :first], grid], axis=1)
