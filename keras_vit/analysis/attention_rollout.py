"""Attention rollout: which patches the output looks at (section 4.5 and appendix D.7).

Abnar & Zuidema (2020) follow attention through all layers by multiplying its
matrices. The identity stands for the residual connection around each attention.
"""

import keras
import numpy as np
from keras import ops

from keras_vit.analysis.attention_maps import attention_tensors
from keras_vit.typing import Tensor


def rollout(attention: Tensor) -> np.ndarray:
    """Multiplies attention matrices through the layers, the deeper on the left.

    Args:
        attention: (layers, ..., tokens, tokens) array, averaged over heads, first
            layer first; rows sum to 1.

    Returns:
        (..., tokens, tokens) float array: what each output token draws from each
        input token. Rows sum to 1.
    """
    attention = np.asarray(attention)
    identity = np.eye(attention.shape[-1], dtype=attention.dtype)
    mixed = attention + identity
    mixed = mixed / mixed.sum(axis=-1, keepdims=True)
    result = mixed[0]
    for layer in mixed[1:]:
        result = layer @ result
    return result


def probe_attention(pool: keras.layers.Layer, tokens: Tensor) -> Tensor:
    """Returns how much a `MAPHead` draws from each token, averaged over its heads.

    Args:
        pool: a built `keras_vit.layers.MAPHead`.
        tokens: (batch, tokens, channels).

    Returns:
        (batch, tokens) float32 tensor; rows sum to 1.
    """
    return ops.mean(pool.probabilities(tokens, pool.probe), axis=1)[:, 0]


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
    if len(images) == 0:
        raise ValueError("Expected at least one image. Received: 0 images.")
    classifier, first = model.arguments["classifier"], model.num_prefix_tokens
    attention = [ops.mean(tensor, axis=1) for tensor in attention_tensors(model)]
    outputs = {"attention": ops.stack(attention)}
    if classifier == "map":
        outputs["tokens"] = model.endpoints["encoded"][:, first:]
    extended = keras.Model(model.input, outputs)
    maps = []
    for start in range(0, len(images), batch_size):
        results = extended(images[start : start + batch_size], training=False)
        rolled = rollout(ops.convert_to_numpy(results["attention"]))
        if classifier == "token":
            patches = rolled[:, 0, first:]
        elif classifier == "map":
            readout = probe_attention(model.get_layer("pool"), results["tokens"])
            patches = np.einsum(
                "bq,bqk->bk", ops.convert_to_numpy(readout), rolled[:, first:, first:]
            )
        else:
            patches = rolled[:, first:, first:].mean(axis=1)
            if classifier == "token_gap":
                patches = (rolled[:, 0, first:] + patches) / 2
        patches = patches / patches.max(axis=-1, keepdims=True)
        maps.append(patches.reshape(-1, *model.grid_size))
    return np.concatenate(maps).astype("float32")
