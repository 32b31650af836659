"""Features with the layout of the image, for detection, segmentation and other dense tasks."""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_vit.models import ResNetV2, VisionTransformer
from keras_vit.models.image_model import require_kind


def feature_maps(
    model: keras.Model, depths: Sequence[int] | None = None, normalize: bool = False
) -> keras.Model:
    """Returns a model of spatial maps at chosen depths, on the same weights.

    Args:
        model: a `VisionTransformer`, whose maps are the patches' tokens after a block, class
            token and registers left out; or a `ResNetV2`, whose maps are its stages'.
        depths: numbers of blocks or stages, from 0, negative ones from the end. None takes four
            blocks evenly spread, or every stage.
        normalize: whether the encoder's last normalization is applied to each map of a
            `VisionTransformer`, as to what its head reads.

    Returns:
        A `keras.Model` from images, (batch, height, width, 3) float32 in [-1, 1], to a dict of
        "block_02" and so on to (batch, rows, columns, channels).

    Raises:
        ValueError: if the model is of another class or has no such block.

    Examples:
        >>> pyramid = keras_vit.feature_maps(vit, depths=(2, 5, 8, 11))
        >>> pyramid(images)["block_11"].shape
        (1, 14, 14, 768)
    """
    require_kind(model, (VisionTransformer, ResNetV2), "a VisionTransformer or ResNetV2")
    blocks = [name for name in model.endpoints if name.startswith("block_")]
    count = len(blocks)
    if depths is None:
        parts = min(4, count) if isinstance(model, VisionTransformer) else count
        depths = [count * (part + 1) // parts - 1 for part in range(parts)]
    numbers = np.atleast_1d(depths)
    whole = numbers.ndim == 1 and numbers.size and numbers.dtype.kind in "iu"
    if not whole or min(numbers) < -count or max(numbers) >= count:
        raise ValueError(
            f"`depths` must be numbers of the model's {count} blocks, from 0. Received: {depths!r}"
        )
    chosen = [blocks[depth] for depth in numbers]
    if isinstance(model, ResNetV2):
        return keras.Model(model.input, {name: model.endpoints[name] for name in chosen})
    maps = {}
    for name in chosen:
        tokens = model.endpoints[name]
        if normalize:
            tokens = model.get_layer("encoder_norm")(tokens)
        shape = (-1, *model.grid_size, tokens.shape[-1])
        maps[name] = ops.reshape(tokens[:, model.num_prefix_tokens :], shape)
    return keras.Model(model.input, maps, name=f"{model.name}_feature_maps")
