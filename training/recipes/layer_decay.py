"""Layer-wise decay of the learning rate, the rule of BEiT's and MAE's fine-tuning.

With L blocks and a decay d, the rate of a weight is multiplied by d to the power of L + 1 minus its
depth. Depth 0 is everything before the first block (patch embedding or stem, class token, register
tokens, position embeddings), the i-th block has depth i, with position embeddings between it and
the one before, and what follows the last block (norm, pooling, head) has depth L + 1, factor 1.
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
    names = [layer.name for layer in model.layers]
    for pattern in (_ENCODER_BLOCK, _RESNET_UNIT):
        blocks = [name for name in names if pattern.fullmatch(name)]
        if blocks:
            break
    else:
        raise ValueError(
            "Expected a model with blocks, whose weights have a depth. "
            f"Received: {model.name}, with the layers {', '.join(names)}."
        )
    found, passed = {}, 0
    for layer in model.layers:
        if layer.name in blocks:
            passed += 1
            depth = passed
        else:
            depth = passed + 1 if passed else 0
        found.update(dict.fromkeys((weight.path for weight in layer.weights), depth))
    return found


def rate_factors(model: keras.Model, decay: float) -> dict[str, float]:
    """Returns {path of a weight: factor of its rate} of the factors that differ from 1.

    `model` is as `depths` takes it; `decay` is the factor of one block; 1 is none.
    """
    if decay == 1.0:
        return {}
    found = depths(model)
    last = max(found.values())
    return {path: decay ** (last - depth) for path, depth in found.items() if depth < last}
