"""Patch kernels and positions of other sizes, as FlexiViT resizes its own (Beyer et al., 2023)."""

import numpy as np


def half_pixel_weights(source: int, target: int, antialias: bool = False) -> np.ndarray:
    """Returns the (target, source) float64 matrix of linear interpolation between pixel centers.

    Sample i of `target` lies at (i + 1/2) source / target - 1/2.

    Args:
        source: int, the length.
        target: int, the new length.
        antialias: bool, whether shrinking averages over all that a sample stands for.
    """
    scale = source / target
    width = max(scale, 1.0) if antialias else 1.0
    centers = (np.arange(target) + 0.5) * scale - 0.5
    distance = np.abs(centers[:, None] - np.arange(source)[None, :])
    weights = np.maximum(0, 1 - distance / width)
    return weights / weights.sum(1, keepdims=True)


def resize_kernel(kernel: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Resizes a patch kernel by the pseudo-inverse of resizing patches, PI-resize (section 3.4).

    Of all kernels of that size it is the one whose embeddings of resized patches are nearest to
    the given kernel's of the patches themselves, and the very same if patches grow.

    Args:
        kernel: (source rows, source columns, channels, width) float array.
        rows: int, the new height in pixels.
        columns: int, the new width in pixels.

    Returns:
        (rows, columns, channels, width) float64 array.
    """
    by_row, by_column = (
        np.linalg.pinv(half_pixel_weights(source, target).T)
        for source, target in zip(kernel.shape[:2], (rows, columns), strict=True)
    )
    return np.einsum("rs,ct,stiw->rciw", by_row, by_column, kernel, optimize=True)


def resize_positions(grid: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Resizes a grid of position embeddings as FlexiViT does in its forward pass.

    Args:
        grid: (source rows, source columns, channels) float array.
        rows: int, the new height in patches.
        columns: int, the new width in patches.

    Returns:
        (rows, columns, channels) array of the grid's dtype.
    """
    by_row = half_pixel_weights(grid.shape[0], rows, antialias=True)
    by_column = half_pixel_weights(grid.shape[1], columns, antialias=True)
    return np.einsum("rs,ct,std->rcd", by_row, by_column, grid, optimize=True).astype(grid.dtype)
