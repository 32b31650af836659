"""Attention weights of a trained model."""

import keras
import numpy as np
from keras import ops

from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.typing import Tensor


def attention_tensors(model: VisionTransformer) -> list[Tensor]:
    """Returns the attention weights of every block as tensors of the model's graph.

    Args:
        model: a `VisionTransformer` with global attention.

    Returns:
        A list, one (batch, heads, tokens, tokens) float32 Keras tensor a block.

    Raises:
        ValueError: if the model's attention is axial.
    """
    return list(model.attention_endpoints.values())


def attention_maps(model: VisionTransformer, images: Tensor) -> Tensor:
    """Returns the attention weights of every block, head and token (equation 6).

    Args:
        model: a `VisionTransformer` with global attention.
        images: (batch, height, width, 3) float32 in [-1, 1].

    Returns:
        (layers, batch, heads, tokens, tokens) float32 tensor; the last axis sums
        to 1. With a class token, it is token 0. Register tokens are left out, as queries
        and as keys: what is paid to them is missing from the sums.
    """
    attention_model = keras.Model(model.input, attention_tensors(model))
    maps = ops.stack(attention_model(images, training=False))
    registers = model.arguments["register_tokens"]
    if not registers:
        return maps
    end = model.num_prefix_tokens
    others = np.delete(np.arange(maps.shape[-1]), np.arange(end - registers, end))
    return ops.take(ops.take(maps, others, axis=-1), others, axis=-2)
