"""The weights of a model that train: freezing, LoRA, and rates that decay from layer to layer.

Layer-wise decay of the learning rate is the rule of BEiT's and MAE's fine-tuning. With L blocks and
a decay d, the rate of a weight is multiplied by d to the power of L + 1 minus its depth. Depth 0 is
everything before the first block (patch embedding or stem, class token, register tokens, position
embeddings), the i-th block has depth i, with position embeddings between it and the one before, and
what follows the last block (norm, pooling, head) has depth L + 1, factor 1.
"""

import contextlib
import fnmatch
import re

import keras
from ml_collections import ConfigDict

from keras_vit.initializers import he_uniform

from ..errors import UsageError

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


def frozen_weights(model: keras.Model, freeze: ConfigDict) -> list[keras.Variable]:
    """Returns the weights that the keys `freeze.*` of a config name.

    Raises:
        UsageError: if a pattern names none, there are fewer blocks, or nothing is left to train.
    """
    weights = model.trainable_variables
    patterns = (pattern.strip() for pattern in freeze.layers.split(",") if pattern.strip())
    chosen = {path for pattern in patterns for path in _matching(model, pattern)}
    if freeze.blocks:
        depth_of = depths(model)
        blocks = max(depth_of.values()) - 1
        if freeze.blocks > blocks:
            raise UsageError(
                f"config.freeze.blocks: expected at most the {blocks} blocks of the model. "
                f"Received: {freeze.blocks}."
            )
        chosen |= {path for path, depth in depth_of.items() if depth <= freeze.blocks}
    if freeze.head_only:
        chosen |= {weight.path for weight in weights} - set(_matching(model, "head*"))
    if chosen and all(weight.path in chosen for weight in weights):
        raise UsageError("config.freeze: expected weights that are left to train. Received: none.")
    return [weight for weight in weights if weight.path in chosen]


def _matching(model, pattern):
    """Returns the paths of the weights in what a pattern names."""
    paths = [weight.path for weight in model.trainable_variables]
    found = [path for path in paths if fnmatch.fnmatchcase(f"{path}/", f"{pattern}/*")]
    if not found:
        layers = ", ".join(layer.name for layer in model.layers if layer.weights)
        raise UsageError(
            f"config.freeze.layers: expected names of layers, such as {layers}, of layers in them "
            f"such as encoder_block_00/mlp, or patterns of names. Received: {pattern!r}."
        )
    return found


def freeze_for_good(model: keras.Model, freeze: ConfigDict) -> None:
    """Takes the weights that `freeze` names out of those that train, if it has no end."""
    if not freeze.until_step:
        for weight in frozen_weights(model, freeze):
            weight.trainable = False


def first_steps(model: keras.Model, freeze: ConfigDict) -> dict[str, int]:
    """Returns the first step of the weights that `freeze` names, if it has an end, by path."""
    until = freeze.until_step
    return {weight.path: until for weight in frozen_weights(model, freeze)} if until else {}


def adapt_low_rank(model: keras.Model, rank: int, alpha: float = 0.0) -> None:
    """Adds low-rank factors to the dense layers of the encoder, and freezes all but the head.

    Low-rank adaptation, LoRA (Hu et al., 2021): a kernel W becomes W + alpha / rank A B, with A
    (inputs, rank) random and B (rank, outputs) zero, so that the model computes what it did until B
    moves. Saving the model adds A B to W.

    Args:
        model: `keras_vit.VisionTransformer`, with the weights that are adapted.
        rank: of the factors, at least 1.
        alpha: the scale times `rank`; 0 is `rank`, a scale of 1.

    Raises:
        ValueError: if the model has no blocks of an encoder.
    """
    blocks = [layer for layer in model.layers if layer.name.startswith("encoder_block_")]
    if not blocks:
        raise ValueError(f"LoRA: expected a model with an encoder. Received: {model.name}.")
    for weight in model.trainable_variables:
        weight.trainable = weight.path.startswith("head")
    for block in blocks:
        for layer in block._flatten_layers():
            if isinstance(layer, keras.layers.Dense):
                with contextlib.ExitStack() as scopes:
                    # The paths of the factors begin as the kernel's does.
                    for name in layer.path.split("/")[:-1]:
                        scopes.enter_context(keras.name_scope(name))
                    layer.enable_lora(rank, alpha or rank, a_initializer=he_uniform())
