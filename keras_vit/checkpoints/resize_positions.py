"""Position embeddings for another grid of patches (section 3.2)."""

import math
import warnings

import numpy as np

from keras_vit.checkpoints.npz_and_safetensors import CheckpointError
from keras_vit.interpolation import corner_weights, half_pixel_weights

# Rows and columns of a grid of patches.
Grid = tuple[int, int]


def resize_line(table: np.ndarray, target: int) -> np.ndarray:
    """Resamples a (source, ...) table along its first axis, linearly, with the ends aligned.

    Returns a (target, ...) array of the table's dtype; the arithmetic is float64.
    """
    if len(table) == target:
        return table
    return np.tensordot(corner_weights(len(table), target), table, 1).astype(table.dtype)


def resize_grid(grid: np.ndarray, rows: int, columns: int, flexible: bool = False) -> np.ndarray:
    """Resamples a grid of position embeddings, bilinearly.

    Args:
        grid: (source rows, source columns, channels) float array.
        rows: int, of the new grid.
        columns: int, of the new grid.
        flexible: bool. False aligns the corners and does not antialias, as fine-tuning at another
            resolution does (section 3.2). True interpolates between pixel centers and antialiases,
            as FlexiViT does in its forward pass.

    Returns:
        (rows, columns, channels) array of the grid's dtype; the arithmetic is float64.
    """
    by_row, by_column = (
        half_pixel_weights(source, target, antialias=True)
        if flexible
        else corner_weights(source, target)
        for source, target in zip(grid.shape, (rows, columns), strict=False)
    )
    return np.einsum("rs,ct,std->rcd", by_row, by_column, grid, optimize=True).astype(grid.dtype)


def square_grid(entries: int, class_token: bool) -> tuple[int, int, int] | None:
    """Returns the (rows, columns, class entries) of a square table of that length, or None.

    A length can be n * n and also a class token and n * n: the model's kind is tried first.
    """
    for first in (int(class_token), 1 - int(class_token)):
        side = math.isqrt(max(entries - first, 0))
        if side and side * side + first == entries:
            return side, side, first
    return None


def grid_of_table(
    entries: int, class_token: bool, grid_size: Grid, stated: Grid | None = None
) -> tuple[int, int, int]:
    """Returns the (rows, columns, class entries) of a table of position embeddings.

    A table has the grid that is stated, else the model's if its length fits, else a square one.
    Each can have an entry for the class token or none. Where both fit, or the model's grid is
    another rectangle, a warning says which is taken.

    Args:
        entries: int, the table's length.
        class_token: bool, whether the model has a class token.
        grid_size: (rows, columns) of the model.
        stated: (rows, columns) that the file or the caller states, or None.

    Raises:
        CheckpointError: if no grid has that many entries.
    """
    rows, columns = stated or grid_size
    square = None if stated else square_grid(entries, class_token)
    candidates = [
        (rows, columns, first)
        for first in (int(class_token), 1 - int(class_token))
        if rows * columns + first == entries
    ]
    if square and square not in candidates:
        candidates.append(square)
        if len(candidates) > 1 or rows != columns:
            warnings.warn(
                f"The file does not state the grid of its {entries} position embeddings. "
                f"{candidates[0][0]} x {candidates[0][1]} is taken; the model has {rows} x "
                f"{columns}. To state it, pass `position_grid=(rows, columns)`.",
                stacklevel=7,
            )
    if not candidates:
        kind = "not a grid" if stated else "neither a square grid nor the model's, a grid"
        raise CheckpointError(
            f"A table of {entries} position embeddings is {kind} of {rows} rows and {columns} "
            "columns, with or without a class token. Pass the table's own grid as "
            "`position_grid=(rows, columns)`."
        )
    return candidates[0]


def resize_table(
    table: np.ndarray,
    class_token: bool,
    grid_size: Grid,
    stated: Grid | None = None,
    flexible: bool = False,
) -> np.ndarray:
    """Resizes a table of position embeddings to a model's grid.

    Args:
        table: (1, entries, channels) float32 array.
        class_token: bool, whether the model has a class token. Its entry is kept apart; it is zero
            if the table has none, and dropped if the model has none.
        grid_size: (rows, columns) of the model.
        stated: (rows, columns) of the table, or None: see `grid_of_table`.
        flexible: bool, as of `resize_grid`.

    Returns:
        (1, entries of the model, channels) float32 array.

    Raises:
        CheckpointError: if the table is no grid.
    """
    rows, columns, first = grid_of_table(table.shape[1], class_token, grid_size, stated)
    channels = table.shape[-1]
    grid = table[0, first:].reshape(rows, columns, channels)
    if (rows, columns) != tuple(grid_size):
        grid = resize_grid(grid, *grid_size, flexible)
    zeros = np.zeros((1, int(class_token), channels), table.dtype)
    prefix = table[:, :1] if class_token and first else zeros
    return np.concatenate([prefix, grid.reshape(1, -1, channels)], axis=1)
