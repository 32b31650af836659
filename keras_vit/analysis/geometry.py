"""Where the tokens of a model lie in the image."""

import numpy as np


def token_distances(grid_size: tuple[int, int], stride: float) -> np.ndarray:
    """Returns the Euclidean distance between every two tokens.

    Args:
        grid_size: (rows, columns).
        stride: pixels between neighbors.

    Returns:
        (rows * columns, rows * columns) float32 array, in pixels, raster order.
    """
    rows, columns = grid_size
    places = np.moveaxis(np.mgrid[:rows, :columns], 0, -1).reshape(-1, 2) * stride
    offsets = places[:, None] - places[None, :]
    return np.sqrt((offsets**2).sum(axis=-1)).astype("float32")
