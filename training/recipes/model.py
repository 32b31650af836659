"""The model of a config: the weights and the head that it starts from."""

import logging
import pathlib
from collections.abc import Sequence

import keras
from ml_collections import ConfigDict

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.model_source import model_source
from keras_vit.errors import damage_named
from keras_vit.files.zip_archives import saved_config
from keras_vit.model_factory import create_model
from keras_vit.models import VisionTransformer

from ..errors import UsageError
from ..io.remote_stores import local_file
from ..tasks import task_of
from .trained_weights import adapt_low_rank, freeze_for_good

logger = logging.getLogger("keras_vit")


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
    task = task_of(config)
    arguments = task.encoder_arguments(num_classes) | config.model.to_dict()
    name = arguments.pop("name", "")
    try:
        model = create_model(name, **arguments) if name else VisionTransformer(**arguments)
    except TypeError as error:
        raise UsageError(f"config.model: {error}") from error
    if config.checkpoint:
        head = ("head",) if config.model.get("representation_size") else ("head", "pre_logits")
        with local_file(config.checkpoint) as file:
            skip = head if config.checkpoint_head == "new" else ()
            if config.checkpoint_head == "auto" and not _has_head_of(file, class_names, task):
                skip = head
            elif config.checkpoint_head == "auto":
                logger.info("The head of %s is kept: its classes are the same.", config.checkpoint)
            if not skip and class_names:
                _require_classes(pathlib.Path(file), list(class_names), task)
            load_checkpoint(model, file, skip=skip)
        known, names = model.class_names or (), class_names or ()
        # Foreign heads may spell classes in another way than the data set, but not exchange them.
        ours, theirs = ([name.casefold() for name in each] for each in (names, known))
        if not skip and ours != theirs and sorted(ours) == sorted(theirs):
            raise _other_classes(config.checkpoint, known, names)
    model.preprocessing, model.activation = config.eval_preprocess or None, config.loss
    trained = task.model_to_train(model, config, num_classes)
    trained.preprocessing, trained.license = model.preprocessing, model.license
    if class_names and len(class_names) == trained.arguments.get("num_classes"):
        trained.class_names = class_names
    model = trained
    if config.lora.rank:
        adapt_low_rank(model, config.lora.rank, config.lora.alpha)
    freeze_for_good(model, config.freeze)
    return model


def _has_head_of(checkpoint, class_names, task):
    """Whether a run or `.keras` file has a head of these classes in their order, one layer."""
    known = _saved_arguments(checkpoint)
    if known is None:
        return False
    names = known.get("class_names")
    if not _fits(known, task):
        logger.info("The head is new: that of %s gives %s.", checkpoint, _given(known))
        return False
    if names and class_names and list(names) == list(class_names):
        return not known.get("representation_size")
    logger.info("The head is new: the classes of %s are others.", checkpoint)
    return False


def _require_classes(checkpoint, class_names, task):
    """Refuses the head of a run or `.keras` file of other names, another order or another task."""
    saved = _saved_arguments(checkpoint) or {}
    known = saved.get("class_names")
    if known and list(known) != class_names:
        raise _other_classes(checkpoint, known, class_names)
    if known and not _fits(saved, task):
        raise UsageError(
            f"config.checkpoint_head: expected new, as the head of {checkpoint} gives "
            f"{_given(saved)}. Received: keep."
        )


def _given(saved):
    return "numbers" if saved.get("activation") == "linear" else "logits of classes"


def _fits(saved, task):
    """Whether the head of a saved model gives numbers for a task of numbers, or else none."""
    return (_given(saved) == "numbers") == (task.learns == "numbers")


def _saved_arguments(checkpoint):
    """Returns the arguments of the model in a run or `.keras` file, None for another checkpoint."""
    source = model_source(checkpoint)
    if not source.is_keras:
        return None
    with damage_named(f"{source.file} is damaged", "Save the model again, with model.save()."):
        return saved_config(source.file)["config"]


def _other_classes(checkpoint, known, class_names):
    return UsageError(
        f"Expected the classes of the head of {checkpoint}, in its order: {', '.join(known)}. "
        f"Received: {', '.join(class_names)}. Train a new head with "
        "--config.checkpoint_head=new, or give the folders these names."
    )
