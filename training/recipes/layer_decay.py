"""Layer-wise decay of the learning rate: what is nearer to the images changes less.

The rule of BEiT's and MAE's fine-tuning: with L blocks and a decay d, the rate of a weight is
multiplied by d to the power of L + 1 minus its depth. Depth 0 is everything before the first block
(patch embedding or stem, class token, register tokens) and every position embedding, the i-th block
has depth i, and what follows the last block (norm, pooling, head) has depth L + 1, factor 1.
"""

import re

import keras

_ENCODER_BLOCK = re.compile(r"encoder_block_\d+")
_RESNET_UNIT = re.compile(r"block\d+_unit\d+")


def depths(model: keras.Model) -> dict[str, int]:
    """Returns the depth of every weight of a model, by its path.

    Args:
        model: a `keras_vit.VisionTransformer` or ResNet; the ResNet of a hybrid is its stem.

    Raises:
        ValueError: if the model has no blocks.
    """
    for pattern in (_ENCODER_BLOCK, _RESNET_UNIT):
        blocks = sum(1 for layer in model.layers if pattern.fullmatch(layer.name))
        if blocks:
            return _depths(model, pattern, blocks)
    raise ValueError(
        "Expected a model with blocks, whose weights have a depth. "
        f"Received: {model.name}, with the layers {', '.join(each.name for each in model.layers)}."
    )


def _depths(model, pattern, blocks):
    found, passed = {}, 0
    for layer in model.layers:
        if pattern.fullmatch(layer.name):
            passed += 1
            depth = passed
        else:
            depth = 0 if passed < blocks or layer.name.startswith("position_") else blocks + 1
        found.update(dict.fromkeys((weight.path for weight in layer.weights), depth))
    return found


def rate_factors(model: keras.Model, decay: float) -> dict[str, float]:
    """Returns the factors of the learning rate that differ from 1, by the weights' paths.

    Args:
        model: as `depths` takes it.
        decay: of one block; 1 is none.
    """
    if decay == 1.0:
        return {}
    found = depths(model)
    last = max(found.values())
    return {path: decay ** (last - depth) for path, depth in found.items() if depth < last}
