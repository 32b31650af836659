"""Principal components of the patch embedding's filters (Figure 7 left)."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_vit.models.image_model import ImageModel, require_kind


class PrincipalFilters(NamedTuple):
    """Principal components, the strongest first.

    Attributes:
        filters: (components, height, width, channels) float array, each in [0, 1].
        explained: (components,) float array, the share of the filters' variance in each component.
    """

    filters: np.ndarray
    explained: np.ndarray


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
    names = {layer.name for layer in model.layers}
    if "conv_root" in names:
        root = model.get_layer("conv_root")
        kernel = root.kernel
        kernel = root.standardize(kernel) if hasattr(root, "standardize") else kernel
    else:
        kernel = model.get_layer("embedding").projection.kernel
    return principal_components(ops.convert_to_numpy(kernel), components)
