"""Converts positions and patch embedding of a file to the grid, patches and images of a model.

A normalization is a (2, 3) float64 array, the mean and the positive std of red, green and blue in
units of [0, 1]: images of that file enter as (rgb - mean) / std. Models here take x = 2 rgb - 1
instead. Patches do not overlap and are not padded, so the difference is exactly another patch
kernel and bias: K (rgb - mean) / std + b is K / (2 std) x + b + K (1/2 - mean) / std.
"""

import logging
import math
import warnings
from collections.abc import Mapping

import numpy as np

from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.layout import Grid
from keras_vit.interpolation import corner_weights, half_pixel_weights

logger = logging.getLogger("keras_vit")


def resize_grid(grid: np.ndarray, *sizes: int, interpolation: str = "corners") -> np.ndarray:
    """Resamples a grid, or a line, of position embeddings, linearly along each axis.

    Args:
        grid: (source rows, source columns, channels) or (source entries, channels) float array.
        *sizes: of the new axes but that of channels.
        interpolation: "corners" aligns the corners, as fine-tuning at another resolution does
            (section 3.2); "centers" interpolates between pixel centers, as Segmenter does;
            "antialiased" does so and antialiases, as FlexiViT does in its forward pass.

    Returns:
        (rows, columns, channels) or (entries, channels) array of the grid's dtype; the arithmetic
        is float64.
    """
    result = grid
    for axis, size in enumerate(sizes):
        source = grid.shape[axis]
        if source != size:
            weights = (
                corner_weights(source, size)
                if interpolation == "corners"
                else half_pixel_weights(source, size, antialias=interpolation == "antialiased")
            )
            result = np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis)
    return result.astype(grid.dtype)


def grid_of_table(
    entries: int,
    class_token: bool | int,
    grid_size: Grid,
    stated: Grid | None = None,
    class_entry: bool | None = None,
) -> tuple[int, int, int]:
    """Returns the (rows, columns, class entries) of a table of position embeddings.

    A table has the grid that is stated, else the model's if its length fits, else a square one.
    Each can have entries for the class tokens or none. Where both fit, or the model's grid is
    another rectangle, a warning says which is taken.

    Args:
        entries: int, the table's length.
        class_token: bool, whether the model has a class token, or int, how many it has.
        grid_size: (rows, columns) of the model.
        stated: (rows, columns) that the file or the caller states, or None.
        class_entry: bool, whether tables of the file's format have an entry for the class token,
            or None if both do occur.

    Raises:
        CheckpointError: if no grid has that many entries.
    """
    rows, columns = stated or grid_size
    # A length can be n * n and also a class token and n * n: the model's kind is tried first.
    kinds = [int(class_token), int(not class_token)]
    if class_entry is not None:
        kinds = [max(kinds) if class_entry else 0]

    def fitting(sides):
        found = ((*pair, kind) for pair, kind in zip(sides, kinds, strict=True))
        return [each for each in found if 0 < each[0] * each[1] == entries - each[2]]

    candidates = fitting([(rows, columns) for _ in kinds])
    sides = [math.isqrt(max(entries - kind, 0)) for kind in kinds]
    square = None if stated else next(iter(fitting(zip(sides, sides, strict=True))), None)
    if square and square not in candidates:
        # An entry that a model without class token drops is the last guess.
        candidates = sorted([*candidates, square], key=lambda found: found[2] > class_token)
        if len(candidates) == 1 and rows == columns:
            said = (
                "The %d position embeddings of the file are taken for a grid of %d x %d, resized."
            )
            logger.info(said, entries, *square[:2])
        else:
            warnings.warn(
                f"The file does not state the grid of its {entries} position embeddings. "
                f"{candidates[0][0]} x {candidates[0][1]} is taken; the model has {rows} x "
                f"{columns}. To state it, pass `position_grid=(rows, columns)`.",
                stacklevel=7,
            )
    if not candidates:
        classes = "with or without a class token"
        if class_entry is not None:
            classes = f"with{'' if class_entry else 'out'} a class token"
        kind = "not a grid" if stated else "neither a square grid nor the model's, a grid"
        raise CheckpointError(
            f"A table of {entries} position embeddings is {kind} of {rows} rows and {columns} "
            f"columns, {classes}. Pass the table's own grid as "
            "`position_grid=(rows, columns)`."
        )
    return candidates[0]


def resize_table(
    table: np.ndarray,
    class_token: bool | int,
    grid_size: Grid,
    stated: Grid | None = None,
    class_entry: bool | None = None,
    interpolation: str = "corners",
) -> np.ndarray:
    """Resizes a table of position embeddings to a model's grid.

    Args:
        table: (1, entries, channels) float32 array.
        class_token: as of `grid_of_table`. A class token's entry is kept apart; it is zero if the
            table has none, and dropped if the model has none.
        grid_size: (rows, columns) of the model.
        stated: (rows, columns) of the table, or None: see `grid_of_table`.
        class_entry: bool or None, as of `grid_of_table`.
        interpolation: as of `resize_grid`.

    Returns:
        (1, entries of the model, channels) float32 array.

    Raises:
        CheckpointError: if the table is no grid.
    """
    entries, channels = table.shape[1:]
    rows, columns, first = grid_of_table(entries, class_token, grid_size, stated, class_entry)
    grid = table[0, first:].reshape(rows, columns, channels)
    grid = resize_grid(grid, *grid_size, interpolation=interpolation)
    zeros = np.zeros((1, int(class_token), channels), table.dtype)
    prefix = table[:, :first] if class_token and first else zeros
    return np.concatenate([prefix, grid.reshape(1, -1, channels)], axis=1)


def convert_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Returns a kernel of red, green and blue for images of another number of channels.

    One channel gets the sum, so that a gray image has the embeddings of the same in color. Of
    more, channel i gets the kernel of color i mod 3, times 3 / channels, as in timm.

    Args:
        kernel: (rows, columns, 3, width) float array.
        channels: int.

    Returns:
        (rows, columns, channels, width) float array.
    """
    if channels == 3:
        return kernel
    if channels == 1:
        return kernel.sum(2, keepdims=True)
    return kernel[:, :, np.arange(channels) % 3] * (3 / channels)


def resize_kernel(kernel: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Resizes a patch kernel by the pseudo-inverse of resizing patches (FlexiViT, section 3.4).

    Of all kernels of that size, it is the one whose embeddings of resized patches are nearest to
    the given kernel's embeddings of the patches themselves. They are equal if patches grow.

    Args:
        kernel: (source rows, source columns, channels, width) float array.
        rows: int, the new height in pixels.
        columns: int, the new width in pixels.

    Returns:
        (rows, columns, channels, width) float64 array.
    """
    by_row, by_column = (
        np.linalg.pinv(half_pixel_weights(source, target).T)
        for source, target in zip(kernel.shape, (rows, columns), strict=False)
    )
    return np.einsum("rs,ct,stiw->rciw", by_row, by_column, kernel, optimize=True)


def convert_patches(
    kernel: np.ndarray,
    arguments: Mapping,
    normalization: np.ndarray | None,
    flexible: bool,
) -> tuple[np.ndarray, np.ndarray | float]:
    """Converts a patch kernel, (rows, columns, 3, width) float32, for a model of such `arguments`.

    The `normalization` is None if the file's images are in [-1, 1]; a `flexible` kernel of another
    patch size is resized. Returns the kernel, (rows, columns, in_channels, width) float32, and a
    shift of the bias, (width,).
    """
    channels, size = arguments["in_channels"], (arguments["patch_size"],) * 2
    if flexible and size != kernel.shape[:2]:
        kernel = resize_kernel(kernel, *size)
    if normalization is None:
        return convert_channels(kernel, channels).astype(np.float32), 0.0
    mean, std = normalization[..., None]
    shift = convert_channels(kernel * ((0.5 - mean) / std), channels).sum((0, 1, 2), np.float64)
    return convert_channels(kernel * (1 / (2 * std)), channels).astype(np.float32), shift
