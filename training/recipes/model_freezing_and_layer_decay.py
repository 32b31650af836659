"""The model of a config: the weights that it starts from, and which of them train how fast.

Layer-wise decay of the learning rate is the rule of BEiT's and MAE's fine-tuning: with L blocks and
a decay d, the rate of a weight is multiplied by d to the power of L + 1 minus its depth. Depth 0 is
everything before the first block (patch embedding or stem, class token, register tokens, position
embeddings), the i-th block has depth i, with position embeddings between it and the one before, and
what follows the last block (norm, pooling, head) has depth L + 1, factor 1.
"""

import contextlib
import fnmatch
import pathlib
import re
from collections.abc import Sequence

import keras
from ml_collections import ConfigDict

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.model_source import model_source
from keras_vit.errors import damage_named
from keras_vit.files.archives import saved_config
from keras_vit.initializers import he_uniform
from keras_vit.model_factory import create_model
from keras_vit.models import VisionTransformer

from ..errors import UsageError
from ..io.remote_stores import local_file
from ..tasks import task_of

_ENCODER_BLOCK = re.compile(r"encoder_block_\d+")
_RESNET_UNIT = re.compile(r"block\d+_unit\d+")


def build_model(
    config: ConfigDict, num_classes: int, class_names: Sequence[str] | None = None
) -> keras.Model:
    """Returns the model of `config.model`, with the weights of `config.checkpoint` if any.

    Transfer removes the whole head, two layers after pre-training, for a single new one (appendix
    B.1.1), unless `config.checkpoint_head` is `"keep"`. What `config.freeze` and `config.lora` name
    to the end of the run is no longer among the model's trainable variables.

    Args:
        config: a complete config.
        num_classes: of the head, unless `config.model` says otherwise.
        class_names: that are stored in the model, if it has as many classes.

    Raises:
        UsageError: for an argument that the model does not take, or a head of other classes.
        ValueError: for arguments or weights that do not fit.
    """
    arguments = {"num_classes": num_classes} | config.model.to_dict()
    name = arguments.pop("name", "")
    try:
        if name:
            model = create_model(name, **arguments)
        else:
            model = VisionTransformer(**arguments)
    except TypeError as error:
        raise UsageError(f"config.model: {error}") from error
    if config.checkpoint:
        head = ("head",) if config.model.get("representation_size") else ("head", "pre_logits")
        skip = () if config.checkpoint_head == "keep" else head
        with local_file(config.checkpoint) as file:
            if not skip and class_names:
                _require_classes(pathlib.Path(file), list(class_names))
            load_checkpoint(model, file, skip=skip)
        known, names = model.class_names or (), class_names or ()
        # Foreign heads may spell classes in another way than the data set, but not exchange them.
        ours, theirs = ([name.casefold() for name in each] for each in (names, known))
        if not skip and ours != theirs and sorted(ours) == sorted(theirs):
            raise _other_classes(config.checkpoint, known, names)
    model.preprocessing, model.activation = config.eval_preprocess or None, config.loss
    if class_names and len(class_names) == model.arguments["num_classes"]:
        model.class_names = class_names
    model = task_of(config).model_to_train(model, config)
    if config.lora.rank:
        adapt_low_rank(model, config.lora.rank, config.lora.alpha)
    freeze_for_good(model, config.freeze)
    return model


def _require_classes(checkpoint, class_names):
    """Refuses the head of a run or `.keras` file of classes with other names or another order."""
    source = model_source(checkpoint)
    if not source.is_keras:
        return
    file = source.file
    with damage_named(f"{file} is damaged", "Save the model again, with model.save()."):
        known = saved_config(file)["config"].get("class_names")
    if known and list(known) != class_names:
        raise _other_classes(checkpoint, known, class_names)


def _other_classes(checkpoint, known, class_names):
    return UsageError(
        f"Expected the classes of the head of {checkpoint}, in its order: {', '.join(known)}. "
        f"Received: {', '.join(class_names)}. Train a new head with "
        "--config.checkpoint_head=new, or give the folders these names."
    )


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
        chosen |= {weight.path for weight in weights} - set(_matching(model, "head"))
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
        weight.trainable = weight.path.startswith("head/")
    for block in blocks:
        for layer in block._flatten_layers():
            if isinstance(layer, keras.layers.Dense):
                with contextlib.ExitStack() as scopes:
                    # The paths of the factors begin as the kernel's does.
                    for name in layer.path.split("/")[:-1]:
                        scopes.enter_context(keras.name_scope(name))
                    layer.enable_lora(rank, alpha or rank, a_initializer=he_uniform())
