"""Targets and losses of masked patches: their colors, as classes or numbers (appendix B.1.2)."""

import numpy as np
from keras import ops

from keras_vit.type_hints import Tensor

# Three bits for each of red, green and blue.
LEVELS = 8
COLORS = LEVELS**3
# The cells that a side of the patch is divided into, each one choice of 512 colors: one is the
# paper's final setting. None stands for all pixels.
TARGETS = {"mean_color": 1, "downsized": 4, "pixels": None}


def color_classes(colors: Tensor) -> Tensor:
    """Returns the 3-bit colors of `colors`, (..., 3) RGB in [0, 1], as int32 (...) in [0, 512).

    Red is most significant: 64 r + 8 g + b, each the floor of 8 times the color, at most 7.
    """
    levels = ops.clip(ops.floor(ops.cast(colors, "float32") * LEVELS), 0, LEVELS - 1)
    levels = ops.cast(levels, "int32")
    return levels[..., 0] * LEVELS**2 + levels[..., 1] * LEVELS + levels[..., 2]


def color_of_class(classes: Tensor) -> np.ndarray:
    """Returns the middle of the cube of colors of each class, (..., 3) RGB in [0, 1]."""
    classes = np.asarray(classes)
    levels = np.stack([classes // LEVELS**2, classes // LEVELS % LEVELS, classes % LEVELS], -1)
    return (levels + 0.5) / LEVELS


def units_of(target: str, patch_size: int) -> int:
    """Returns how many numbers are predicted for a patch of so many pixels on a side."""
    cells = TARGETS[target]
    if cells is None:
        return patch_size**2 * 3
    if patch_size % cells:
        raise ValueError(
            f"target={target!r} needs patches whose side is a multiple of {cells} pixels. "
            f"Received: {patch_size} pixels"
        )
    return cells**2 * COLORS


def targets_of(target: str, patches: Tensor) -> Tensor:
    """Returns the targets of (batch, patches, size, size, 3) pixels in [-1, 1].

    They are the pixels, (batch, patches, 3 size^2), or int32 colors, (batch, patches, cells^2).
    """
    cells, (_, count, size, _, channels) = TARGETS[target], patches.shape
    if cells is None:
        return ops.reshape(patches, (-1, count, size * size * channels))
    side = (cells, size // cells)
    means = ops.mean(ops.reshape(patches, (-1, count, *side, *side, channels)), axis=(3, 5))
    return color_classes((ops.reshape(means, (-1, count, cells**2, channels)) + 1) / 2)


def patch_losses(target: str, patches: Tensor, positions: Tensor, predictions: Tensor) -> Tensor:
    """Compares predictions with the patches of the image.

    Args:
        target: one of `TARGETS`: colors are compared by cross-entropy, pixels by their mean
            squared error.
        patches: (batch, patches, size, size, 3) float32 in [-1, 1].
        positions: (batch, predicted) int indices of patches.
        predictions: (batch, predicted, units) float32.

    Returns:
        (batch, predicted) float32 losses.
    """
    targets = ops.take_along_axis(targets_of(target, patches), positions[..., None], axis=1)
    cells = TARGETS[target]
    if cells is None:
        return ops.mean(ops.square(targets - predictions), axis=-1)
    logits = ops.reshape(predictions, (-1, positions.shape[1], cells**2, COLORS))
    by_cell = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    return ops.mean(by_cell, axis=-1)
