"""A model's heads, GELU and epsilon, which the arrays of its file do not show."""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import keras

from keras_vit.checkpoints.npz_and_safetensors import STATED, CheckpointError, Source
from keras_vit.checkpoints.published_weights_table import Published
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.timm_model_names import TIMM_NAMES
from keras_vit.variants import arguments_of

# Names of Hugging Face and of timm.
_GELU = {"gelu": "erf", "gelu_erf": "erf", "gelu_python": "erf"}
_GELU |= dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_tanh"), "tanh")
_POOLING = {"token": "token", "avg": "gap", "map": "map"}  # timm's
_HUGGING_FACE_NAMES = {"num_heads": "num_attention_heads", "layer_norm_epsilon": "layer_norm_eps"}
_DEFAULTS = {n: p.default for n, p in inspect.signature(VisionTransformer).parameters.items()}


def compare_stated_arguments(model: keras.Model, source: Source, row: Published | None) -> None:
    """Compares a model with the row of a published name, or with the configuration of a file.

    Raises:
        CheckpointError: for another number of heads, or an activation that is no GELU. Another
            GELU, epsilon, pooling or place of the positions is a warning.
    """
    origin = row.path if row else f"The configuration of {source.path}"
    stated = _of_model(row.model) | dict(row.arguments) if row else _of_config(source.config)
    differing = {
        name: stated[name]
        for name in STATED
        if name in stated and model.arguments.get(name, stated[name]) != stated[name]
    }
    pool = _POOLING.get(str(stated.get("global_pool")))
    if pool and model.arguments.get("classifier", pool) not in (pool, "unpooled"):
        differing["classifier"] = pool
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
            "other numbers unless it is built with them.",
            stacklevel=4,
        )


def _of_model(name) -> dict[str, Any]:
    return _DEFAULTS | arguments_of(name)[1]


def _of_config(config) -> dict[str, Any]:
    """Returns the arguments in a configuration: ours, timm's or one of Hugging Face's."""
    architecture, tower = str(config.get("architecture")), config.get("vision_config")
    own = config.get("model_args")
    own = dict(own) if isinstance(own, Mapping) else {}
    if architecture in TIMM_NAMES:
        stated = _of_model(architecture) | own
    else:
        config = tower if isinstance(tower, Mapping) else config
        names = {ours: name for ours, name in _HUGGING_FACE_NAMES.items() if name in config}
        stated = {**config, **own, **{ours: config[name] for ours, name in names.items()}}
    activation = own.get("act_layer", config.get("hidden_act"))
    if activation is not None:
        if activation not in _GELU:
            raise CheckpointError(
                f"Expected the activation to be a GELU, one of {', '.join(_GELU)}. The file's "
                f"configuration says {activation!r}. Nothing was loaded."
            )
        stated["gelu"] = _GELU[activation]
    return stated
