"""The keys of a training config, their defaults, and what must hold between them."""

import difflib
import json

from ml_collections import ConfigDict

from training.errors import UsageError
from training.recipes import tables

# What a resumed run may change: where and how it computes, not what.
RESUMABLE = frozenset(
    {
        "checkpoint_every_minutes",
        "checkpoint_every_steps",
        "data_dir",
        "few_shot.every_steps",
        "jit_compile",
        "keep_checkpoints",
        "log_every_steps",
        "peer_timeout",
        "profile",
        "steps_per_call",
        "strategy",
        "tpu",
        "tpu_project",
        "tpu_zone",
    }
)


def default_config():
    """Returns a config with every key; a recipe changes what it needs.

    Keys:
        seed: of weights, data order, augmentation and dropout.
        strategy: `"one"`, `"mirrored"`, `"multiworker"` or `"tpu"`.
        tpu, tpu_zone, tpu_project: name (or `"local"`, or `grpc://` address) of the TPU.
        peer_timeout: seconds that a worker waits for one that does not answer.
        checkpoint: file or published name of the weights to start from; "" starts anew.
        checkpoint_head: `"new"` starts from an untrained head, as transfer does; `"keep"` loads it.
        data_dir: folder of TensorFlow Datasets; "" is its default.
        model: `name` of a variant (or "") and further arguments of the model's constructor.
        dataset, train_split, eval_split: of the registry; eval_split="" never evaluates.
        train_preprocess, eval_preprocess: operations, separated by `|`.
        batch_size, eval_batch_size: over all replicas; eval_batch_size=0 is batch_size.
        total_steps: number of updates; 0 derives it from `epochs`.
        loss: `"softmax"`, `"sigmoid"`, or `"own"` for a model that returns its losses.
        masked: pre-training by masked patch prediction: `target` of
            `keras_vit.MaskedPatchPrediction` ("" trains a classifier) and `corruption_rate`.
        mixup_p: parameter of MixUp's beta distribution; 0 is off.
        optimizer: keys of `training.build_optimizer`; optimizer.total_steps=0 is total_steps.
        ema_decay: of the moving average of the weights, which is evaluated and saved; 0 is off.
        accumulation_steps: micro-batches that a batch is split into.
        steps_per_call: updates per call from the host.
        precision: `"float32"` or `"mixed_bfloat16"`.
        jit_compile: whether XLA compiles the step (on TPU it always does).
        checkpoint_every_steps, checkpoint_every_minutes, keep_checkpoints: of exact resumption.
        log_every_steps: between rows of `metrics.csv`.
        eval_every_steps: between evaluations; 0 evaluates after the last step only.
        few_shot: few-shot accuracy while training: `datasets`, names separated by commas ("" is
            off), `shots`, and `every_steps`, 0 for after the last step only.
        on_error: `"raise"` or `"skip"`, for images that cannot be decoded.
        loss_limit: a loss above it, infinite or NaN stops the run.
        profile: `"FIRST:LAST"` steps to profile for TensorBoard, or "".
    """
    return ConfigDict(
        {
            "seed": 0,
            "strategy": "one",
            "tpu": "",
            "tpu_zone": "",
            "tpu_project": "",
            "peer_timeout": 45,
            "checkpoint": "",
            "checkpoint_head": "new",
            "data_dir": "",
            "model": {"name": ""},
            "dataset": "",
            "train_split": "train",
            "eval_split": "",
            "train_preprocess": "",
            "eval_preprocess": "",
            "batch_size": 0,
            "eval_batch_size": 0,
            "total_steps": 0,
            "epochs": 0.0,
            "loss": "softmax",
            "masked": {"target": "", "corruption_rate": 0.5},
            "mixup_p": 0.0,
            "optimizer": {
                "name": "adamw",
                "base_lr": 1e-3,
                "schedule": "cosine",
                "warmup_steps": 0,
                "total_steps": 0,
                "end_lr": 0.0,
                "momentum": 0.9,
                "weight_decay": 0.0,
                "clip_norm": 0.0,
                "beta_1": 0.9,
                "beta_2": 0.999,
                "first_moment_dtype": "float32",
            },
            "ema_decay": 0.0,
            "accumulation_steps": 1,
            "steps_per_call": 1,
            "precision": "float32",
            "jit_compile": False,
            "checkpoint_every_steps": 1000,
            "checkpoint_every_minutes": 10.0,
            "keep_checkpoints": 2,
            "log_every_steps": 50,
            "eval_every_steps": 0,
            "few_shot": {"datasets": "", "shots": (1, 5, 10, 25), "every_steps": 0},
            "on_error": "raise",
            "loss_limit": 1e6,
            "profile": "",
        }
    )


_CHOICES = {
    "checkpoint_head": ("new", "keep"),
    "strategy": ("one", "mirrored", "multiworker", "tpu"),
    "loss": ("softmax", "sigmoid", "own"),
    "precision": ("float32", "mixed_bfloat16"),
    "on_error": ("raise", "skip"),
}

# The least value of a key, and what that value means if it is a special one.
_LEAST = {
    "accumulation_steps": (1, ""),
    "batch_size": (1, ""),
    "checkpoint_every_minutes": (0, ""),
    "checkpoint_every_steps": (0, "0 saves by checkpoint_every_minutes only"),
    "epochs": (0, "0 leaves the length to total_steps"),
    "eval_batch_size": (0, "0 is batch_size"),
    "eval_every_steps": (0, "0 evaluates after the last step only"),
    "few_shot.every_steps": (0, "0 evaluates after the last step only"),
    "keep_checkpoints": (1, ""),
    "log_every_steps": (1, ""),
    "optimizer.total_steps": (0, "0 is total_steps"),
    "optimizer.warmup_steps": (0, "0 is no warm-up"),
    "peer_timeout": (1, ""),
    "steps_per_call": (1, ""),
    "total_steps": (0, "0 derives it from epochs"),
}


def complete(config):
    """Returns a copy of `config` with defaults for the keys it does not give.

    Raises:
        UsageError: for an unknown key or a value out of range.
    """
    result = default_config()
    _merge(result, config, "")
    for key, choices in _CHOICES.items():
        if result[key] not in choices:
            raise UsageError(
                f"config.{key}: expected one of {', '.join(choices)}. Received: {result[key]!r}."
            )
    _check_least(result)
    if not result.dataset:
        raise UsageError("config.dataset: expected the name of a data set. Received: ''.")
    if result.total_steps < 1 and result.epochs <= 0:
        raise UsageError(
            "Expected config.total_steps or config.epochs to be positive. "
            f"Received: {result.total_steps} and {result.epochs}."
        )
    if result.batch_size % result.accumulation_steps:
        raise UsageError(
            "config.batch_size must be a multiple of config.accumulation_steps. "
            f"Received: {result.batch_size} and {result.accumulation_steps}."
        )
    _check_masked(result)
    result.eval_batch_size = result.eval_batch_size or result.batch_size
    return result


def _check_least(config):
    values = _flatten(config.to_dict())
    for key, (least, meaning) in _LEAST.items():
        # Written so that NaN is refused as well.
        if values[key] is None or not values[key] >= least:
            note = f" ({meaning})" if meaning else ""
            raise UsageError(
                f"config.{key}: expected at least {least}{note}. Received: {values[key]}. "
                f"Set --config.{key}={least} or more."
            )


def _check_masked(config):
    masked = bool(config.masked.target)
    if masked != (config.loss == "own"):
        raise UsageError(
            'Masked patch prediction needs config.loss="own", and nothing else does. Received: '
            f"config.masked.target={config.masked.target!r}, config.loss={config.loss!r}."
        )
    if masked and config.eval_split:
        raise UsageError(
            "Masked patch prediction has no accuracy to evaluate: leave config.eval_split empty. "
            f"Received: {config.eval_split!r}."
        )


def _merge(result, config, prefix):
    for key, value in config.items():
        # A model takes any argument of its constructor, which checks them itself.
        if key not in result and prefix != "model.":
            close = difflib.get_close_matches(key, result.keys(), n=1)
            hint = f" Did you mean {prefix}{close[0]}?" if close else ""
            raise UsageError(
                f"Unknown config key {prefix}{key}.{hint} Known keys: {', '.join(sorted(result))}."
            )
        if isinstance(value, (dict, ConfigDict)) and isinstance(result.get(key), ConfigDict):
            _merge(result[key], value, f"{prefix}{key}.")
        elif key in result:
            try:
                result[key] = value
            except TypeError as error:
                raise UsageError(
                    f"config.{prefix}{key}: expected a {type(result[key]).__name__}. "
                    f"Received: {value!r}."
                ) from error
        else:
            result[key] = value


def derive_steps(config, examples):
    """Fills in `total_steps` from `epochs`, and the length of the schedule from `total_steps`.

    Args:
        config: a complete config, changed in place.
        examples: size of the training split.
    """
    if config.total_steps < 1:
        config.total_steps = tables.steps(config.epochs, examples, config.batch_size)
    if config.optimizer.total_steps < 1:
        config.optimizer.total_steps = config.total_steps


def to_json(config):
    """Returns the config as indented JSON, keys sorted."""
    return json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n"


def differences(before, after):
    """Returns `key: old value -> new value` for all that forbids resuming `before` as `after`.

    Args:
        before, after: nested dicts, as read from `config.json`.
    """
    # A run from before a key existed is one with its default.
    before = _flatten(default_config().to_dict()) | _flatten(before)
    after = _flatten(after)
    return [
        f"{key}: {before.get(key)!r} -> {after.get(key)!r}"
        for key in sorted(set(before) | set(after))
        if key not in RESUMABLE and before.get(key) != after.get(key)
    ]


def _flatten(config, prefix=""):
    flat = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
