"""What no array's shape shows of a file's model: its heads, its GELU, its epsilon."""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import keras

from keras_vit.checkpoints.array_files import STATED, Source
from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.published_table import Published
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.timm_names import TIMM_NAMES
from keras_vit.variants import arguments_of

_HUGGING_FACE_GELU = {"gelu": "erf", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
_PARAMETERS = inspect.signature(VisionTransformer).parameters
_DEFAULTS = {name: _PARAMETERS[name].default for name in ("gelu", "layer_norm_epsilon")}


def compare_stated_arguments(model: keras.Model, source: Source, row: Published | None) -> None:
    """Compares a model with what a published name, or the configuration of a file, says.

    Args:
        model: what the file is loaded into.
        source: the file.
        row: what is known of its published name, or None.

    Raises:
        CheckpointError: for another number of heads. Another GELU or epsilon is a warning.
    """
    origin = row.path if row else f"The configuration of {source.path}"
    differing = {
        name: value
        for name, value in (_of_row(row) if row else _of_config(source.config)).items()
        if model.arguments.get(name, value) != value
    }
    if "num_heads" in differing:
        heads, own = differing["num_heads"], model.arguments["num_heads"]
        raise CheckpointError(
            f"{origin} says num_heads={heads}, the model has num_heads={own}. Build the model "
            f"with num_heads={heads}. Nothing was loaded."
        )
    if differing:
        spelled = ", ".join(f"{name}={value!r}" for name, value in differing.items())
        warnings.warn(
            f"{origin} asks for {spelled}. The weights are loaded, but the model computes "
            "slightly other numbers unless it is built with them.",
            stacklevel=5,
        )


def _of_row(row) -> dict[str, Any]:
    return _chosen({**_DEFAULTS, **arguments_of(row.model)[1], **row.arguments})


def _of_config(config) -> dict[str, Any]:
    """Returns what a configuration says: ours, timm's or one of Hugging Face's."""
    architecture, tower = str(config.get("architecture")), config.get("vision_config")
    if architecture in TIMM_NAMES:
        return _chosen({**_DEFAULTS, **arguments_of(architecture)[1]})
    config = tower if isinstance(tower, Mapping) else config
    stated = _chosen(config)
    if "num_attention_heads" in config:
        stated["num_heads"] = config["num_attention_heads"]
    if str(config.get("hidden_act")) in _HUGGING_FACE_GELU:
        stated["gelu"] = _HUGGING_FACE_GELU[config["hidden_act"]]
    if "layer_norm_eps" in config:
        stated["layer_norm_epsilon"] = config["layer_norm_eps"]
    return stated


def _chosen(arguments):
    return {name: arguments[name] for name in STATED if name in arguments}
