"""Attention weights, their mean distance by head and depth, and their rollout over the layers.

Figures 6, 7 right, 10 and 13. Abnar & Zuidema (2020) follow attention through all layers by
multiplying its matrices, the deeper on the left: R = (A_L + I) / 2 ... (A_1 + I) / 2, with A_l
averaged over heads. The identity stands for the residual connection around each attention.
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_vit.backends.by_backend import predicting
from keras_vit.models.any_resolution import AttentionOfBlock
from keras_vit.models.argument_ranges import CLASS_TOKENS
from keras_vit.models.image_model import require_kind
from keras_vit.models.segmenter import Segmenter
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.photos.prepare_photos import require_model_range
from keras_vit.type_hints import Tensor


def attention_tensors(model: VisionTransformer) -> list[Tensor]:
    """Returns the attention weights of every block of a model with global attention.

    They are Keras tensors of its graph, (batch, heads, tokens, tokens) float32.

    Raises:
        ValueError: if the model's attention is axial, or it is another model.
    """
    require_kind(model, VisionTransformer, "a VisionTransformer")
    return list(model.attention_endpoints.values())


def attention_maps(model: VisionTransformer, images: Tensor) -> Tensor:
    """Returns the attention weights of every block, head and token (equation 6).

    Args:
        model: a `VisionTransformer` with global attention.
        images: (batch, height, width, 3) float32 in [-1, 1].

    Returns:
        (layers, batch, heads, tokens, tokens) float32 tensor; the last axis sums
        to 1. With a class token, it is token 0. Register tokens are left out, as queries
        and as keys: the weights on them are missing from the sums.

    Raises:
        ValueError: if the model's attention is axial, or it is another model.
    """
    # Stacked in the graph: of a list of one output Keras returns the output.
    stacked = ops.stack(attention_tensors(model))
    require_model_range(ops.convert_to_numpy(images))
    maps = keras.Model(model.input, stacked)(images, training=False)
    registers = model.arguments["register_tokens"]
    if not registers:
        return maps
    end = model.num_prefix_tokens
    others = np.delete(np.arange(maps.shape[-1]), np.arange(end - registers, end))
    return ops.take(ops.take(maps, others, axis=-1), others, axis=-2)


def by_batch(model: keras.Model, images: Tensor, batch_size: int) -> np.ndarray:
    """Returns a model's output for images, computed `batch_size` images at a time.

    Raises ValueError if there is no image, or values lie outside of [-1, 1].
    """
    if len(images) == 0:
        raise ValueError("Expected at least one image. Received: 0 images.")
    require_model_range(ops.convert_to_numpy(images))
    if keras.backend.backend() == "jax":
        # One program of one shape: called eagerly, JAX compiles every operation by itself.
        padding = (0, -len(images) % batch_size), (0, 0), (0, 0), (0, 0)
        padded = np.pad(ops.convert_to_numpy(images), padding, "edge")
        with predicting(model):
            return model.predict(padded, batch_size, verbose=0)[: len(images)]
    starts = range(0, len(images), batch_size)
    batches = (images[start : start + batch_size] for start in starts)
    return np.concatenate([ops.convert_to_numpy(model(b, training=False)) for b in batches])


def token_distances(grid_size: tuple[int, int], stride: float) -> np.ndarray:
    """Returns the Euclidean distances in pixels between the tokens of a (rows, columns) grid.

    They are (rows * columns, rows * columns) float32, in raster order; `stride` are the pixels
    between neighbors.
    """
    rows, columns = grid_size
    places = np.moveaxis(np.mgrid[:rows, :columns], 0, -1).reshape(-1, 2) * stride
    offsets = places[:, None] - places[None, :]
    return np.sqrt((offsets**2).sum(axis=-1)).astype("float32")


def mean_distance(attention: Tensor, distances: np.ndarray, renormalize: bool = False) -> Tensor:
    """Averages the distance between patches under the attention weights (appendix D.6).

    Args:
        attention: (..., tokens, tokens); class and register tokens, which `distances` has
            no rows for, are left out as query and as key.
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
    tensors = attention_tensors(model)
    distances = token_distances(model.grid_size, model.token_stride)
    by_layer = [mean_distance(each, distances, renormalize) for each in tensors]
    return by_batch(keras.Model(model.input, ops.stack(by_layer, 1)), images, batch_size).mean(0)


def rollout_endpoint(model: keras.Model) -> Tensor:
    """Returns `attention_rollout`, (batch, rows, columns) float32, as a tensor of a model's graph.

    Follows the row of the output token alone down through the layers, which multiplies a vector
    and a matrix for each instead of two matrices.
    """
    layers = [ops.mean(tensor, axis=1) for tensor in attention_tensors(model)]
    read, through_last = readout(model, layers.pop())
    drawn = (through_last + read) / 2
    for layer in reversed(layers):
        drawn = (drawn + ops.matmul(drawn, layer)) / 2
    patches = drawn[..., model.num_prefix_tokens :]
    patches = patches / ops.max(patches, axis=-1, keepdims=True)
    return ops.reshape(patches, (-1, *model.grid_size))


def readout(model: VisionTransformer, last: Tensor) -> tuple[Tensor, Tensor]:
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
    tokens = CLASS_TOKENS.get(classifier, 1)
    token = (
        (np.arange(count) < tokens).astype("float32")[None, None] / tokens,
        ops.mean(last[:, :tokens], axis=1, keepdims=True) if tokens > 1 else last[:, :1],
    )
    patches = (np.arange(count) >= first).astype("float32") / (count - first)
    mean = patches[None, None], ops.mean(last[:, first:], axis=1, keepdims=True)
    if classifier == "token_gap":
        return tuple((a + b) / 2 for a, b in zip(token, mean, strict=True))
    return token if classifier in ("token", "distilled") else mean


def attention_rollout(model: keras.Model, images: Tensor, batch_size: int = 8) -> np.ndarray:
    """Returns how much the representation draws from each patch of the images.

    The paper follows attention from the output token to the image (appendix D.7): the map is the
    rolled-out row of the tokens that the representation reads. That is the class token with
    `classifier="token"`; the mean of the patches with "gap" and "unpooled"; the mean of those two
    with "token_gap", whose representation is both; that of the two class tokens with "distilled";
    the mean of the patches under the pooling's weights with "map". Register tokens pass attention
    on, and are left out of the map.

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


def class_attention(model: Segmenter, images: Tensor, batch_size: int = 8) -> np.ndarray:
    """Returns how much each class of a mask decoder draws from each patch, by its blocks.

    The attention of the class embeddings, averaged over heads; what is missing to a sum of 1 is
    drawn from class embeddings.

    Args:
        model: a `keras_vit.Segmenter` with `decoder="mask"`.
        images: (batch, height, width, 3) float32 in [-1, 1], of the model's size.
        batch_size: int, images per forward pass.

    Returns:
        (batch, blocks, classes, rows, columns) float32 NumPy array.

    Raises:
        ValueError: for another model, or if there is no image.
    """
    require_kind(model, Segmenter, "a Segmenter")
    if model.arguments["decoder"] != "mask":
        raise ValueError('Expected a Segmenter with decoder="mask". Received: decoder="linear".')
    names = [name for name in model.endpoints if name.startswith("decoder_block")]
    inputs = [model.get_layer("class_embeddings").output, *map(model.endpoints.get, names[:-1])]
    first = inputs[0].shape[1] - model.arguments["num_classes"]
    drawn = [
        ops.mean(AttentionOfBlock(model.get_layer(name))(tokens), axis=1)[:, first:, :first]
        for name, tokens in zip(names, inputs, strict=True)
    ]
    stacked = by_batch(keras.Model(model.input, ops.stack(drawn, 1)), images, batch_size)
    return stacked.reshape(*stacked.shape[:-1], *model.encoder.grid_size)


def rollout_function(model: keras.Model, batch_size: int = 8) -> Callable[[Tensor], np.ndarray]:
    """Returns `attention_rollout` of one model, prepared and compiled once for all calls."""
    endpoint = rollout_endpoint(model)
    extended = keras.Model(model.input, endpoint)
    return lambda images: by_batch(extended, images, batch_size)
