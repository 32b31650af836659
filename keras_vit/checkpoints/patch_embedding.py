"""Converts the patch embedding of a file to the images and patches of a model.

A normalization is a (2, 3) float64 array, the mean and the positive std of red, green and blue in
units of [0, 1]: images of that file enter as (rgb - mean) / std. Models here take x = 2 rgb - 1
instead. Patches do not overlap and are not padded, so the difference is exactly another patch
kernel and bias: K (rgb - mean) / std + b is K / (2 std) x + b + K (1/2 - mean) / std.
"""

from collections.abc import Mapping

import numpy as np

from keras_vit.interpolation import half_pixel_weights


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
