"""The images that ranges of activations are determined with."""

from collections.abc import Iterable

import numpy as np

from export.image_range import check_range
from keras_vit.typing import Tensor


def calibration_images(
    calibration: Iterable[Tensor], size: tuple[int, int], limit: int
) -> np.ndarray:
    """Returns up to `limit` images, (n, height, width, 3) float32 in [0, 1].

    Args:
        calibration: array of images, or an iterable of images or of batches.
        size: (height, width) in pixels.
        limit: how many are taken at most.

    Raises:
        ValueError: if there are none, or their size or range is another.
    """
    images: list[np.ndarray] = []
    for each in calibration:
        array = np.asarray(each, dtype="float32")
        images.extend(array if array.ndim == 4 else [array])
        if len(images) >= limit:
            break
    shapes = {image.shape for image in images[:limit]}
    if shapes != {(*size, 3)}:
        raise ValueError(
            f"Expected calibration images of shape {(*size, 3)}. Received: "
            f"{sorted(shapes) or 'no images'}"
        )
    stacked = np.stack(images[:limit])
    check_range(stacked)
    return stacked
