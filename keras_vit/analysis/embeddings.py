"""The filters of the patch embedding, and similarities of positions (Figure 7 left and center)."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_vit.layers.position_embeddings_2d import POSITION_EMBEDDINGS
from keras_vit.models.image_model import ImageModel, require_kind


class PrincipalFilters(NamedTuple):
    """Principal components, the strongest first."""

    filters: np.ndarray  # (components, height, width, channels) floats in [0, 1]
    explained: np.ndarray  # (components,) floats, each component's share of the filters' variance


def principal_components(kernel: np.ndarray, components: int = 28) -> PrincipalFilters:
    """Returns the principal components of a convolution's filters.

    Args:
        kernel: (height, width, channels, filters) array.
        components: int, the most to return. There are at most as many as inputs of a filter,
            and one fewer than filters: around their mean these span no more.

    Returns:
        A `PrincipalFilters`. The largest entry of every component by magnitude
        is positive, so that the result does not depend on the solver.
    """
    kernel = np.asarray(kernel, "float64")
    samples = kernel.reshape(-1, kernel.shape[-1]).T
    centered = samples - samples.mean(axis=0)
    _, singular_values, directions = np.linalg.svd(centered, full_matrices=False)
    variance = singular_values**2
    components = min(components, len(samples) - 1)
    directions = directions[:components]
    largest = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    directions = directions * signs[:, None]
    low = directions.min(axis=1, keepdims=True)
    high = directions.max(axis=1, keepdims=True)
    images = ((directions - low) / (high - low)).reshape(-1, *kernel.shape[:3])
    return PrincipalFilters(images, variance[:components] / variance.sum())


def embedding_filters(model: keras.Model, components: int = 28) -> PrincipalFilters:
    """Returns the principal components of the patch embedding's filters (equation 1).

    A hybrid's embedding sees features instead of pixels; there, and in a ResNet,
    the filters of the first convolution are taken, standardized as it uses them.

    Args:
        model: a `keras_vit.VisionTransformer` or `keras_vit.ResNetV2`.
        components: int; the paper's figure shows 28.

    Returns:
        A `PrincipalFilters` of (patch size, patch size, 3) images.
    """
    require_kind(model, ImageModel, "a model of keras_vit")
    root: Any = next((layer for layer in model.layers if layer.name == "conv_root"), None)
    kernel = root.kernel if root else model.get_layer("embedding").projection.kernel
    kernel = root.standardize(kernel) if hasattr(root, "standardize") else kernel
    return principal_components(ops.convert_to_numpy(kernel), components)


def position_similarity(model: keras.Model, block: int = 0) -> np.ndarray:
    """Compares the position embedding of every patch with that of every other.

    Args:
        model: a `keras_vit.VisionTransformer` whose positions are added to tokens.
        block: int, which block's embedding to take where every block has its own.

    Returns:
        (rows, columns, rows, columns) float64 array of cosines in [-1, 1]: tile
        [i, j] of the figure is the grid of similarities to the patch in row i
        and column j. The class token is left out.

    Raises:
        ValueError: if the model adds no position embedding, or has no such block.
    """
    require_kind(model, ImageModel, "a model of keras_vit")
    arguments = model.arguments
    if arguments.get("position_embedding") not in POSITION_EMBEDDINGS:
        raise ValueError(
            "Expected a model that adds an embedding of each position to its tokens, one of "
            f"{', '.join(POSITION_EMBEDDINGS)}. "
            f"Received: position_embedding={arguments.get('position_embedding')!r}"
        )
    if not 0 <= block < arguments["num_layers"]:
        raise ValueError(
            f"`block` must lie in [0, {arguments['num_layers']}). Received: block={block}"
        )
    own = arguments["position_placement"] == "every"
    layer = model.get_layer(f"position_embedding_{block:02d}" if own else "position_embedding")
    table = ops.convert_to_numpy(layer.table())[0].astype("float64")
    rows, columns = model.grid_size
    patches = table[len(table) - rows * columns :]
    patches = patches / np.linalg.norm(patches, axis=1, keepdims=True)
    return (patches @ patches.T).clip(-1, 1).reshape(rows, columns, rows, columns)
