"""The optimizer that a config describes."""

import inspect
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import keras
from ml_collections import ConfigDict

from keras_vit.learning_rate_schedule import WarmupDecay
from keras_vit.name_suggestions import require_one_of
from keras_vit.optimizers import OPTIMIZERS

from ..config import default_config
from .trained_weights import first_steps, rate_factors

DEFAULTS: dict[str, Any] = default_config().optimizer.to_dict() | {
    "ema_decay": default_config().ema_decay
}


def build_optimizer(
    config: Mapping[str, Any],
    model: keras.Model | None = None,
    starts: Mapping[str, int] | None = None,
) -> keras.optimizers.Optimizer:
    """Returns the optimizer that `config` describes.

    Args:
        config: `ml_collections.ConfigDict` or dict with any of the keys `optimizer.*` and
            `ema_decay` of `training.config.schema.KEYS`; total_steps is required. The decay of the
            weights is relative to the rate, which is Table 3's convention.
        model: that it will train, whose depth a `layer_decay` is told by.
        starts: {path of a variable: the first update that changes it}.

    Raises:
        ValueError: for an unknown key, optimizer or schedule, without total_steps, or for a
            layer_decay without a model.
    """
    if unknown := sorted(set(config) - DEFAULTS.keys()):
        raise ValueError(
            f"Optimizer: unknown key {', '.join(unknown)}. Expected keys: {', '.join(DEFAULTS)}."
        )
    chosen = SimpleNamespace(**DEFAULTS | dict(config))
    require_one_of("optimizer", chosen.name, OPTIMIZERS)
    if chosen.layer_decay != 1.0 and model is None:
        raise ValueError("Optimizer: layer_decay needs the model. Received: model=None.")
    shared = ("weight_decay", "first_moment_dtype", "ema_decay")
    optimizer = OPTIMIZERS[chosen.name]
    arguments = DEFAULTS.keys() & inspect.signature(optimizer).parameters.keys() - {"name"}
    if chosen.name.startswith("keras."):
        arguments -= {"nesterov"}  # Muon's own default is another.
        ours = {"momentum", "nesterov", "beta_1", "beta_2", "first_moment_dtype"} - arguments
        changed = sorted(key for key in ours if getattr(chosen, key) != DEFAULTS[key])
        if changed or starts:
            unused = ", ".join(changed) or "freeze.until_step"
            raise ValueError(f"Optimizer: {chosen.name} takes no {unused}. Leave it out.")
        shared = ("weight_decay", "ema_decay")
    return optimizer(
        WarmupDecay(
            chosen.base_lr, chosen.total_steps, chosen.warmup_steps, chosen.schedule, chosen.end_lr
        ),
        global_clipnorm=chosen.clip_norm or None,
        rate_factors=rate_factors(model, chosen.layer_decay) if model else None,
        first_steps=starts,
        **{key: getattr(chosen, key) for key in {*shared, *arguments}},
    )


def optimizer_of(config: ConfigDict, model: keras.Model) -> keras.optimizers.Optimizer:
    """Returns the optimizer of a run, of a complete config and the model that the run trains.

    Raises `ValueError` or `UsageError` if the model lacks what `config.freeze` or `layer_decay`
    names.
    """
    settings = config.optimizer.to_dict() | {"ema_decay": config.ema_decay}
    return build_optimizer(settings, model, first_steps(model, config.freeze))
