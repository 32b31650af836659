"""Position embeddings of other image sizes (section 3.2)."""

import math
from collections.abc import Callable

import numpy as np

from keras_vit.checkpoints.errors import CheckpointError

# Rows and columns of a grid of patches.
Grid = tuple[int, int]


def resize_line(table: np.ndarray, target: int) -> np.ndarray:
    """Resamples a table along its first axis, linearly, with the ends aligned.

    Sample i of the result lies at i * (source - 1) / (target - 1) of the table.

    Args:
        table: (source, ...) float array.
        target: int, the new length.

    Returns:
        (target, ...) array of the table's dtype; the arithmetic is float64.
    """
    source = len(table)
    position = np.arange(target) * ((source - 1) / max(target - 1, 1))
    # Rounding can put the last sample past the last entry; `scipy.ndimage.zoom`,
    # which the original calls, returns zeros there.
    position = np.minimum(position, source - 1)
    below = np.minimum(position.astype(int), max(source - 2, 0))
    above = np.minimum(below + 1, source - 1)
    fraction = (position - below).reshape(-1, *(1,) * (table.ndim - 1))
    wide = table.astype(np.float64)
    return ((1 - fraction) * wide[below] + fraction * wide[above]).astype(table.dtype)


def resize_grid(grid: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Resamples a grid of embeddings, bilinearly, with the corners aligned.

    This is what fine-tuning at another resolution does to position embeddings.
    There is no antialiasing, as in the original.

    Args:
        grid: (source rows, source columns, channels) float array.
        rows, columns: ints, the new size.

    Returns:
        (rows, columns, channels) array of the grid's dtype.
    """
    wide = resize_line(grid.astype(np.float64), rows)
    wide = resize_line(wide.swapaxes(0, 1), columns).swapaxes(0, 1)
    return np.ascontiguousarray(wide.astype(grid.dtype))


def grid_of_table(
    entries: int, class_token: bool, grid_size: Grid, stated: Grid | None = None
) -> tuple[int, int, int]:
    """Returns the (rows, columns, class entries) of a table of position embeddings.

    Published tables are square, with or without an entry for the class token.
    A table that is not must have the model's own grid, or say what it has.

    Args:
        entries: int, the table's length.
        class_token: bool, whether the model has a class token.
        grid_size: (rows, columns) of the model.
        stated: (rows, columns) that the file or the caller states, or None.

    Raises:
        CheckpointError: if no grid has that many entries.
    """
    own, other = int(class_token), 1 - int(class_token)
    if stated is not None:
        for first in (own, other):
            if stated[0] * stated[1] + first == entries:
                return (*stated, first)
        raise CheckpointError(
            f"A table of {entries} position embeddings is not a grid of {stated[0]} rows and "
            f"{stated[1]} columns, with or without a class token. Pass the table's own "
            "`position_grid`."
        )
    # Squares first: n * n entries are also a class token and (n + 1) * (n - 1).
    for first in (own, other):
        side = math.isqrt(max(entries - first, 0))
        if side and side * side + first == entries:
            return side, side, first
    if grid_size[0] * grid_size[1] + own == entries:
        return (*grid_size, own)
    raise CheckpointError(
        f"A table of {entries} position embeddings is neither a square grid nor the model's, "
        f"{grid_size[0]} rows and {grid_size[1]} columns. Pass its grid as "
        "`position_grid=(rows, columns)`."
    )


def resize_table(
    table: np.ndarray,
    class_token: bool,
    grid_size: Grid,
    stated: Grid | None = None,
    resize: Callable[[np.ndarray, int, int], np.ndarray] = resize_grid,
) -> np.ndarray:
    """Resizes a table of position embeddings to a model's grid.

    Args:
        table: (1, entries, channels) float32 array.
        class_token: bool, whether the model has a class token. Its entry is kept
            apart; it is zero if the table has none, and dropped if the model has
            none.
        grid_size: (rows, columns) of the model.
        stated: (rows, columns) of the table, or None for a square one.
        resize: function of (grid, rows, columns) that resizes a (rows, columns, channels) grid.

    Returns:
        (1, entries of the model, channels) float32 array.

    Raises:
        CheckpointError: if the table is no grid.
    """
    rows, columns, first = grid_of_table(table.shape[1], class_token, grid_size, stated)
    channels = table.shape[-1]
    prefix, grid = table[:, :first], table[0, first:].reshape(rows, columns, channels)
    if (rows, columns) != tuple(grid_size):
        grid = resize(grid, *grid_size)
    if not class_token:
        prefix = prefix[:, :0]
    elif first == 0:
        prefix = np.zeros((1, 1, channels), table.dtype)
    return np.concatenate([prefix, grid.reshape(1, -1, channels)], axis=1)
