"""The model of a config, with the weights that it starts from."""

import pathlib
from collections.abc import Sequence

import keras
from ml_collections import ConfigDict

import keras_vit
from keras_vit.training.errors import UsageError, damage_named
from keras_vit.training.io.stores import local_file
from keras_vit.training.recipes import layer_decay_and_freezing
from keras_vit.unpacking import saved_config


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
            model = keras_vit.create_model(name, **arguments)
        else:
            model = keras_vit.VisionTransformer(**arguments)
    except TypeError as error:
        raise UsageError(f"config.model: {error}") from error
    if config.checkpoint:
        head = ("head",) if config.model.get("representation_size") else ("head", "pre_logits")
        skip = () if config.checkpoint_head == "keep" else head
        with local_file(config.checkpoint) as file:
            if not skip and class_names:
                _require_classes(pathlib.Path(file), list(class_names))
            keras_vit.load_checkpoint(model, file, skip=skip)
    model.preprocessing, model.activation = config.eval_preprocess or None, config.loss
    if class_names and len(class_names) == model.arguments["num_classes"]:
        model.class_names = class_names
    if config.masked.target:
        return keras_vit.MaskedPatchPrediction(model, **config.masked.to_dict())
    if config.lora.rank:
        layer_decay_and_freezing.adapt_low_rank(model, config.lora.rank, config.lora.alpha)
    layer_decay_and_freezing.freeze_for_good(model, config.freeze)
    return model


def _require_classes(checkpoint, class_names):
    """Refuses the head of a run or `.keras` file of classes with other names or another order."""
    file = checkpoint / "model.keras" if checkpoint.is_dir() else checkpoint
    if file.suffix != ".keras" or not file.exists():
        return
    with damage_named(f"{file} is damaged", "Save the model again, with model.save()."):
        known = saved_config(file)["config"].get("class_names")
    if known and list(known) != class_names:
        raise UsageError(
            f"Expected the classes of the head of {checkpoint}, in its order: {', '.join(known)}. "
            f"Received: {', '.join(class_names)}. Train a new head with "
            "--config.checkpoint_head=new, or give the folders these names."
        )
