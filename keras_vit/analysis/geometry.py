"""Where the tokens of a model lie in the image."""

import numpy as np


def token_stride(model):
    """Returns the distance between neighbouring tokens, in pixels of the image.

    It is the patch size, times the stride of the ResNet of a hybrid.
    """
    resnet = model.arguments["resnet"]
    if not resnet:
        return model.arguments["patch_size"]
    # The root halves the image twice; every stage after the first halves it again.
    return model.arguments["patch_size"] * 4 * 2 ** max(len(resnet["num_layers"]) - 1, 0)


def token_distances(grid_size, stride):
    """Returns the Euclidean distance between every two tokens.

    Args:
        grid_size: (rows, columns).
        stride: pixels between neighbours.

    Returns:
        (rows * columns, rows * columns) float32 array, in pixels, raster order.
    """
    places = np.stack(np.mgrid[: grid_size[0], : grid_size[1]], axis=-1).reshape(-1, 2) * stride
    offsets = places[:, None] - places[None, :]
    return np.sqrt((offsets**2).sum(axis=-1)).astype("float32")
