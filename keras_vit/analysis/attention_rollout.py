"""Attention rollout: which patches the output looks at (section 4.5 and appendix D.7).

Abnar & Zuidema (2020) follow attention through all layers by multiplying its matrices, the deeper
on the left: R = (A_L + I) / 2 ... (A_1 + I) / 2, with A_l averaged over heads. The identity stands
for the residual connection around each attention.
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_vit.analysis.attention_and_distance import attention_tensors, by_batch
from keras_vit.type_hints import Tensor


def rollout_endpoint(model: keras.Model) -> Tensor:
    """Returns `attention_rollout`, (batch, rows, columns) float32, as a tensor of a model's graph.

    Follows the row of the output token alone down through the layers, which multiplies a vector
    and a matrix for each instead of two matrices.
    """
    layers = [ops.mean(tensor, axis=1) for tensor in attention_tensors(model)]
    readout, through_last = _readout(model, layers.pop())
    drawn = (through_last + readout) / 2
    for layer in reversed(layers):
        drawn = (drawn + ops.matmul(drawn, layer)) / 2
    patches = drawn[..., model.num_prefix_tokens :]
    patches = patches / ops.max(patches, axis=-1, keepdims=True)
    return ops.reshape(patches, (-1, *model.grid_size))


def _readout(model, last):
    """Returns how much the representation draws from each token after and before the last layer.

    Both are (1 or batch, 1, tokens). The second is the first times `last`, the attention of that
    layer. Delegates on GPUs refuse a matrix product with a constant on its left.
    """
    classifier, first = model.arguments["classifier"], model.num_prefix_tokens
    count = last.shape[-1]
    if classifier == "map":
        pool, tokens = model.get_layer("pool"), model.endpoints["encoded"][:, first:]
        pooled = ops.mean(pool.probabilities(pool.probe, tokens), axis=1)
        pooled = ops.pad(pooled, ((0, 0), (0, 0), (first, 0)))
        return pooled, ops.matmul(pooled, last)
    token = np.eye(1, count, dtype="float32")[None], last[:, :1]
    patches = (np.arange(count) >= first).astype("float32") / (count - first)
    mean = patches[None, None], ops.mean(last[:, first:], axis=1, keepdims=True)
    if classifier == "token_gap":
        return tuple((a + b) / 2 for a, b in zip(token, mean, strict=True))
    return token if classifier == "token" else mean


def attention_rollout(model: keras.Model, images: Tensor, batch_size: int = 8) -> np.ndarray:
    """Returns how much the representation draws from each patch of the images.

    The class token's row of the rolled-out attention is taken. A model without
    class token pools its output tokens: then it is the mean of their rows, or
    with multi-head attention pooling their mean under the pooling's weights.
    Register tokens pass attention on, and are left out of the map.

    Args:
        model: a `keras_vit.VisionTransformer` with global attention; hybrids too.
        images: (batch, height, width, 3) float32 in [-1, 1], of the model's size.
        batch_size: int, images per forward pass.

    Returns:
        (batch, rows, columns) float32 NumPy array, the grid of patches. Every
        map is divided by its maximum, so that it lies in [0, 1].

    Raises:
        ValueError: if the model's attention is axial, or there is no image.
    """
    return rollout_function(model, batch_size)(images)


def rollout_function(model: keras.Model, batch_size: int = 8) -> Callable[[Tensor], np.ndarray]:
    """Returns `attention_rollout` of one model, prepared and compiled once for all calls."""
    extended = keras.Model(model.input, rollout_endpoint(model))
    return lambda images: by_batch(extended, images, batch_size)
