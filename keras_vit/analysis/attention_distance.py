"""Mean attention distance by head and depth (Figure 7 right, Figure 10, appendix D.6)."""

import keras
import numpy as np
from keras import ops

from keras_vit.analysis.attention_maps import attention_tensors
from keras_vit.analysis.geometry import token_distances
from keras_vit.typing import Tensor


def mean_distance(attention: Tensor, distances: np.ndarray, renormalize: bool = False) -> Tensor:
    """Averages the distance to what each patch attends to, under the attention weights.

    Args:
        attention: (..., tokens, tokens); class and register tokens, more than
            `distances` knows, are left out as query and as key.
        distances: (patches, patches), in pixels.
        renormalize: bool, whether to divide the weights that remain without the
            class token by their sum. The original does not: attention paid to
            the class token counts as distance 0.

    Returns:
        (...) tensor, the mean over the queries, in pixels.
    """
    first = attention.shape[-1] - distances.shape[-1]
    patches = attention[..., first:, first:]
    by_query = ops.sum(patches * distances, axis=-1)
    if renormalize:
        by_query = by_query / ops.sum(patches, axis=-1)
    return ops.mean(by_query, axis=-1)


def attention_distance(
    model: keras.Model, images: Tensor, renormalize: bool = False, batch_size: int = 8
) -> np.ndarray:
    """Returns how far each head of each layer looks, averaged over the images.

    The paper averages over 128 images.

    Args:
        model: a `keras_vit.VisionTransformer` with global attention; hybrids too.
        images: (batch, height, width, 3) float32 in [-1, 1], of the model's size.
        renormalize: bool, see `mean_distance`.
        batch_size: int, images per forward pass.

    Returns:
        (layers, heads) float32 NumPy array, in pixels of the image.

    Raises:
        ValueError: if the model's attention is axial, or there is no image.
    """
    if len(images) == 0:
        raise ValueError("Expected at least one image. Received: 0 images.")
    distances = token_distances(model.grid_size, model.token_stride)
    by_layer = [mean_distance(a, distances, renormalize) for a in attention_tensors(model)]
    extended = keras.Model(model.input, ops.stack(by_layer))
    results = [
        ops.convert_to_numpy(extended(images[start : start + batch_size], training=False))
        for start in range(0, len(images), batch_size)
    ]
    return np.concatenate(results, axis=1).mean(axis=1)
