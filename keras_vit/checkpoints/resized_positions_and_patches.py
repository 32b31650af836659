"""The patch embedding and the positions of a file, for the images and patches of a model.

A normalization is a (2, 3) float64 array, the mean and the positive std of red, green and blue in
units of [0, 1]: images of that file enter as (rgb - mean) / std. Models here take x = 2 rgb - 1
instead. Patches do not overlap and are not padded, so the difference is exactly another patch
kernel and bias: K (rgb - mean) / std + b is K / (2 std) x + b + K (1/2 - mean) / std.
"""

import logging
import math
import warnings
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_vit.checkpoints.npz_and_safetensors import CheckpointError, Grid, Source, json_beside
from keras_vit.checkpoints.npz_file_layouts import FileLayout
from keras_vit.interpolation import corner_weights, half_pixel_weights

logger = logging.getLogger("keras_vit")

PREPROCESSOR = "preprocessor_config.json"


def normalization_of(
    source: Source, mean: Sequence[float] | float | None, std: Sequence[float] | float | None
) -> np.ndarray:
    """Returns the normalization of a PyTorch-format file: the caller's, or that of its folder.

    There timm's config.json states it, or Hugging Face's preprocessor_config.json. Raises
    CheckpointError if they are not known, or are no three numbers.
    """
    if mean is not None or std is not None:
        return _checked(mean, std, "the arguments `mean` and `std`", source)
    config = source.config.get("pretrained_cfg", source.config)
    if isinstance(config, Mapping) and {"mean", "std"} & set(config):
        return _checked(config.get("mean"), config.get("std"), "config.json", source)
    preprocessor = json_beside(source.path, PREPROCESSOR)
    if preprocessor is None:
        processor = json_beside(source.path, "processor_config.json") or {}
        preprocessor = processor.get("image_processor")
    if isinstance(preprocessor, Mapping):
        return _of_preprocessor(preprocessor, source)
    raise CheckpointError(
        f"{source.path} does not tell how the images of its training were normalized, and models "
        "here take [-1, 1]. Put timm's config.json (with `pretrained_cfg`) or Hugging Face's "
        f"{PREPROCESSOR} beside the file, or pass load_checkpoint(..., mean=(r, g, b), "
        "std=(r, g, b)) in units of [0, 1]: ImageNet's are mean=(0.485, 0.456, 0.406), "
        "std=(0.229, 0.224, 0.225); files for [-1, 1] have 0.5 for all. Nothing was loaded."
    )


def _of_preprocessor(config, source):
    if config.get("do_flip_channel_order"):
        raise CheckpointError(
            f"Expected a model of red, green and blue. {PREPROCESSOR} beside {source.path} flips "
            "the order of the channels. Nothing was loaded."
        )
    mean, std = [0.0] * 3, [1.0] * 3
    if config.get("do_normalize", True):
        mean, std = config.get("image_mean"), config.get("image_std")
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    if not isinstance(factor, (int, float)) or not factor > 0:
        raise CheckpointError(
            f"Expected a positive `rescale_factor` in {PREPROCESSOR} beside {source.path}. "
            f"Received: {factor!r}. Nothing was loaded."
        )
    # They normalize pixels of 0 to 255, times the factor; 1 / 255 in decimals is not exact.
    return _checked(mean, std, PREPROCESSOR, source, round(255 * factor, 9))


def _checked(mean, std, origin, source, unit=1.0):
    try:
        # One number is that of all three colors.
        values = np.array([[v] * 3 if np.ndim(v) == 0 else v for v in (mean, std)], np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (2, 3) or not np.isfinite(values).all() or values[1].min() <= 0:
        raise CheckpointError(
            f"{source.path} cannot be loaded so. Expected in {origin} a mean and a "
            f"positive std of red, green and blue, in units of [0, 1]. Received: mean={mean!r}, "
            f"std={std!r}. Nothing was loaded."
        )
    values /= unit
    if values.max() > 1:
        raise CheckpointError(
            f"Expected for {source.path} a mean and std of red, green and blue in units of [0, 1]. "
            f"Received: {values.tolist()}. Divide values of 0..255 by 255. Nothing was loaded."
        )
    return values


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
    source: Source,
    layout: FileLayout,
    model: keras.Model,
    normalization: np.ndarray | None,
    flexible: bool,
) -> None:
    """Converts the patch embedding of a file to the images and patches of a model.

    Leaves other shapes as they are, for the comparison with the model to refuse. `normalization`
    is of the images that the file was made for, None if they are in [-1, 1]. If `flexible`, a
    kernel of another patch size is resized. Raises CheckpointError for a normalization and a kernel
    that is not of color images.
    """
    weight, bias, axes = layout.patch_arrays()
    is_kernel = source.has_numbers(weight) and source.arrays[weight].ndim == 4
    if not is_kernel or model.arguments.get("resnet", True):
        return
    kernel = source.arrays[weight].transpose(axes)
    rows, columns, colors, width = kernel.shape
    size = (rows, columns)
    if colors != 3:
        if normalization is None:
            return
        raise CheckpointError(
            f"{source.path} is not of color images: expected a kernel of 3 channels, whose "
            f"normalization is known. Received: {weight} of {colors}. Nothing was loaded."
        )
    channels = model.arguments["in_channels"]
    target = (model.arguments["patch_size"],) * 2 if flexible else size
    if (target, channels) == (size, 3) and normalization is None:
        return
    mean, std = (0.5, 0.5) if normalization is None else normalization[..., None]
    if target != size:
        kernel = resize_kernel(kernel, *target)

    def scaled(factor):
        return kernel * factor if channels == 3 else convert_channels(kernel * factor, channels)

    converted = scaled(1 / (2 * std)).transpose(np.argsort(axes))
    source.arrays[weight] = np.ascontiguousarray(converted, np.float32)
    if source.has_numbers(bias) and source.arrays[bias].shape == (width,):
        shift = scaled((0.5 - mean) / std).sum((0, 1, 2), np.float64)
        source.arrays[bias] = (source.arrays[bias] + shift).astype(np.float32)


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


def _class_entries(class_token, class_entry):
    return (int(class_token), 1 - int(class_token)) if class_entry is None else (int(class_entry),)


def square_grid(
    entries: int, class_token: bool, class_entry: bool | None = None
) -> tuple[int, int, int] | None:
    """Returns the (rows, columns, class entries) of a square table of that length, or None.

    A length can be n * n and also a class token and n * n: the model's kind is tried first, unless
    the format says by `class_entry` whether its tables have one.
    """
    for first in _class_entries(class_token, class_entry):
        side = math.isqrt(max(entries - first, 0))
        if side and side * side + first == entries:
            return side, side, first
    return None


def grid_of_table(
    entries: int,
    class_token: bool,
    grid_size: Grid,
    stated: Grid | None = None,
    class_entry: bool | None = None,
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
        class_entry: bool, whether tables of the file's format have an entry for the class token,
            or None if both do occur.

    Raises:
        CheckpointError: if no grid has that many entries.
    """
    rows, columns = stated or grid_size
    square = None if stated else square_grid(entries, class_token, class_entry)
    candidates = [
        (rows, columns, first)
        for first in _class_entries(class_token, class_entry)
        if rows * columns + first == entries
    ]
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
    class_token: bool,
    grid_size: Grid,
    stated: Grid | None = None,
    flexible: bool = False,
    class_entry: bool | None = None,
) -> np.ndarray:
    """Resizes a table of position embeddings to a model's grid.

    Args:
        table: (1, entries, channels) float32 array.
        class_token: bool, whether the model has a class token. Its entry is kept apart; it is zero
            if the table has none, and dropped if the model has none.
        grid_size: (rows, columns) of the model.
        stated: (rows, columns) of the table, or None: see `grid_of_table`.
        flexible: bool, as of `resize_grid`.
        class_entry: bool or None, as of `grid_of_table`.

    Returns:
        (1, entries of the model, channels) float32 array.

    Raises:
        CheckpointError: if the table is no grid.
    """
    entries = table.shape[1]
    rows, columns, first = grid_of_table(entries, class_token, grid_size, stated, class_entry)
    channels = table.shape[-1]
    grid = table[0, first:].reshape(rows, columns, channels)
    if (rows, columns) != tuple(grid_size):
        grid = resize_grid(grid, *grid_size, flexible)
    zeros = np.zeros((1, int(class_token), channels), table.dtype)
    prefix = table[:, :1] if class_token and first else zeros
    return np.concatenate([prefix, grid.reshape(1, -1, channels)], axis=1)
