"""Which weights of a model keep their values, and until when."""

import fnmatch

import keras
from ml_collections import ConfigDict

from training.config_rules import freezes
from training.errors import UsageError
from training.recipes.layer_decay import depths


def chosen_weights(model: keras.Model, freeze: ConfigDict) -> list[keras.Variable]:
    """Returns the weights that the keys `freeze.*` of a config name.

    Raises:
        UsageError: if a pattern names none, there are fewer blocks, or nothing is left to train.
    """
    weights = model.trainable_variables
    chosen = {path for pattern in _patterns(freeze) for path in _matching(model, pattern)}
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
        chosen |= {weight.path for weight in weights} - set(_matching(model, "head"))
    if all(weight.path in chosen for weight in weights):
        raise UsageError("config.freeze: expected weights that are left to train. Received: none.")
    return [weight for weight in weights if weight.path in chosen]


def _patterns(freeze):
    return [pattern.strip() for pattern in freeze.layers.split(",") if pattern.strip()]


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
    if freezes(freeze) and not freeze.until_step:
        for weight in chosen_weights(model, freeze):
            weight.trainable = False


def first_steps(model: keras.Model, freeze: ConfigDict) -> dict[str, int]:
    """Returns the first step of the weights that `freeze` names, if it has an end, by path."""
    if not freezes(freeze) or not freeze.until_step:
        return {}
    return {weight.path: freeze.until_step for weight in chosen_weights(model, freeze)}
