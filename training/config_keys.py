"""The keys of a training config: defaults, choices, bounds and meanings, as one table."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from training.config_rules import check_together
from training.data import fingerprint, tfds_folder
from training.errors import UsageError, did_you_mean
from training.reporting.table import Table

# The largest of the numbers that Keras counts updates in, and that weights are computed in.
INT32 = 2**31 - 1
FLOAT32 = 3.4e38


class Key(NamedTuple):
    """One key of a config.

    Attributes:
        name: with its sections, such as `optimizer.base_lr`.
        default: its value in a config that does not give it, which also fixes the type.
        meaning: one line.
        choices: all values that it can have; empty for any.
        least: the smallest value, or None.
        greatest: the largest value, or None; that of whole numbers is at most `INT32`.
        below: what the value is smaller than, or None.
        special: what the smallest value means, if it is a special one.
        resumable: whether a resumed run may change it: where and how it computes, not what.
        own: whether every process of a job may have its own.
    """

    name: str
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    greatest: float | None = None
    below: int | None = None
    special: str = ""
    resumable: bool = False
    own: bool = False


KEYS = (
    Key("seed", 0, "of weights, data order, augmentation and dropout", least=0),
    Key(
        "strategy",
        "one",
        "one device; TensorFlow: all GPUs of a host, several hosts, a TPU; JAX: a mesh of devices",
        choices=("one", "mirrored", "multiworker", "tpu", "sharded"),
        resumable=True,
    ),
    Key(
        "mesh.data",
        -1,
        "of sharded: devices along which batches are split",
        least=-1,
        special="-1 is all devices that are left",
        resumable=True,
    ),
    Key(
        "mesh.fsdp",
        1,
        "of sharded: devices along which batches, weights and moments are split",
        least=-1,
        special="-1 is all devices that are left",
        resumable=True,
    ),
    Key(
        "processes.coordinator",
        "",
        "of sharded: host:port of process 0, or auto for what JAX detects; empty is one process, "
        "or auto on a TPU slice of several hosts",
        resumable=True,
        own=True,
    ),
    Key("processes.count", 1, "number of processes", least=1, resumable=True),
    Key("processes.index", 0, "number of this process, from 0", least=0, resumable=True, own=True),
    Key("tpu", "", "name of the TPU, `local`, or its grpc:// address", resumable=True),
    Key("tpu_zone", "", "Google Cloud zone of the TPU", resumable=True),
    Key("tpu_project", "", "Google Cloud project of the TPU", resumable=True),
    Key(
        "peer_timeout",
        45,
        "seconds that a process waits for one that does not answer",
        least=1,
        resumable=True,
    ),
    Key("checkpoint", "", "file or published name of the weights to start from; empty starts anew"),
    Key(
        "expects_checkpoint",
        False,
        "whether the recipe fine-tunes, so that a run without a checkpoint warns",
        resumable=True,
    ),
    Key(
        "checkpoint_head",
        "new",
        "an untrained head, as transfer has it, or that of the checkpoint",
        choices=("new", "keep"),
    ),
    Key(
        "data_dir",
        "",
        "folder of TensorFlow Datasets; empty is its default",
        resumable=True,
        own=True,
    ),
    Key("model.name", "", "of a variant, or empty; beside it any argument of the constructor"),
    Key("dataset", "", "name of the registry"),
    Key("train_split", "train", "split of the data set"),
    Key("eval_split", "", "split of the data set; empty never evaluates"),
    Key("train_preprocess", "", "operations, separated by |"),
    Key("eval_preprocess", "", "operations, separated by |"),
    Key(
        "data_changed",
        "refuse",
        "whether a resumed run goes on with data that is not what it was",
        choices=("refuse", "accept"),
        resumable=True,
    ),
    Key(
        "cache",
        False,
        "whether each process keeps the decoded training images in memory, so that only its first "
        "epoch decodes",
    ),
    Key(
        "reduced_decoding.train",
        0.0,
        "decodes JPEGs at 1/2, 1/4 or 1/8 where that leaves at least so many times the rows and "
        "columns that they are resized to; 0 is off, as in published recipes",
        least=0,
        greatest=FLOAT32,
    ),
    Key(
        "reduced_decoding.eval",
        0.0,
        "the same in the evaluations of a run; 0 is off, as in published numbers",
        least=0,
        greatest=FLOAT32,
    ),
    Key("batch_size", 0, "images per update, over all devices", least=1),
    Key(
        "eval_batch_size",
        0,
        "images per step of evaluation, over all devices",
        least=0,
        special="0 is batch_size",
    ),
    Key("total_steps", 0, "number of updates", least=0, special="0 derives it from epochs"),
    Key(
        "epochs",
        0.0,
        "passes over the training split",
        least=0,
        greatest=INT32,
        special="0 leaves the length to total_steps",
    ),
    Key("loss", "softmax", "of a classifier", choices=("softmax", "sigmoid")),
    Key(
        "label_smoothing",
        0.0,
        "of the training loss: the part of a label that is spread over all classes",
        least=0,
        below=1,
    ),
    Key(
        "class_weights",
        "",
        "of the training loss: `balanced`, or a number for each class, separated by commas; empty "
        "counts all images alike",
    ),
    Key(
        "masked.target",
        "",
        "masked patch prediction of mean_color, downsized or pixels; empty trains a classifier",
    ),
    Key(
        "masked.corruption_rate",
        0.5,
        "fraction of the patches that is corrupted",
        least=0,
        greatest=1,
    ),
    Key(
        "mixup_p",
        0.0,
        "parameter of MixUp's beta distribution; 0 is off",
        least=0,
        greatest=FLOAT32,
    ),
    Key("optimizer.name", "adamw", "SGD with momentum, or AdamW", choices=("sgd", "adamw")),
    Key(
        "optimizer.base_lr",
        1e-3,
        "learning rate at the end of the warm-up",
        least=0,
        greatest=FLOAT32,
    ),
    Key(
        "optimizer.schedule",
        "cosine",
        "decay of the rate after the warm-up",
        choices=("cosine", "linear"),
    ),
    Key(
        "optimizer.warmup_steps",
        0,
        "updates of linear warm-up from rate 0",
        least=0,
        special="0 is no warm-up",
    ),
    Key(
        "optimizer.total_steps",
        0,
        "length of the schedule",
        least=0,
        special="0 is total_steps",
    ),
    Key(
        "optimizer.end_lr",
        0.0,
        "learning rate after the last update",
        least=0,
        greatest=FLOAT32,
    ),
    Key("optimizer.momentum", 0.9, "of SGD", least=0, below=1),
    Key(
        "optimizer.weight_decay",
        0.0,
        "decoupled, relative to the rate, on kernels only",
        least=0,
        greatest=FLOAT32,
    ),
    Key(
        "optimizer.clip_norm",
        0.0,
        "largest global norm of the gradients; 0 does not clip",
        least=0,
        greatest=FLOAT32,
    ),
    Key("optimizer.beta_1", 0.9, "decay of AdamW's first moment", least=0, below=1),
    Key("optimizer.beta_2", 0.999, "decay of AdamW's second moment", least=0, below=1),
    Key(
        "optimizer.first_moment_dtype",
        "float32",
        "that the momentum or first moment is stored in",
        choices=("float32", "bfloat16"),
    ),
    Key(
        "optimizer.layer_decay",
        1.0,
        "factor of the rate from each block to the one before; embeddings are lowest, the head "
        "has the whole rate; 1 is off",
        least=0,
        greatest=1,
    ),
    Key(
        "freeze.layers",
        "",
        "layers whose weights stay as they are: names or patterns such as `encoder_block_0?`, "
        "separated by commas; empty freezes none",
    ),
    Key(
        "freeze.blocks",
        0,
        "blocks that stay as they are, from the first, with all that comes before them",
        least=0,
        special="0 is none",
    ),
    Key("freeze.head_only", False, "whether all but the head stay as they are"),
    Key(
        "freeze.until_step",
        0,
        "update after which what is frozen trains as well",
        least=0,
        special="0 is never",
    ),
    Key(
        "lora.rank",
        0,
        "of the factors that train in place of the encoder's kernels (LoRA), with the head",
        least=0,
        special="0 is off",
    ),
    Key(
        "lora.alpha",
        0.0,
        "scale of the factors' product, times the rank; 0 is the rank",
        least=0,
        greatest=FLOAT32,
    ),
    Key(
        "ema_decay",
        0.0,
        "of the moving average of the weights, which is evaluated and saved; 0 is off",
        least=0,
        below=1,
    ),
    Key("accumulation_steps", 1, "micro-batches that a device's part is computed in", least=1),
    Key("steps_per_call", 1, "updates per call from the host", least=1, resumable=True),
    Key(
        "precision",
        "float32",
        "of the computations; weights are float32",
        choices=("float32", "mixed_bfloat16"),
    ),
    Key(
        "jit_compile",
        False,
        "whether XLA compiles TensorFlow's step; on TPU and with JAX it always does",
        resumable=True,
    ),
    Key(
        "checkpoint_every_steps",
        1000,
        "updates between states that a run resumes from",
        least=0,
        special="0 saves by checkpoint_every_minutes only",
        resumable=True,
    ),
    Key(
        "checkpoint_every_minutes",
        10.0,
        "longest time between states that a run resumes from",
        least=0,
        resumable=True,
    ),
    Key("keep_checkpoints", 2, "states kept", least=1, resumable=True),
    Key("log_every_steps", 50, "updates between rows of metrics.csv", least=1, resumable=True),
    Key(
        "eval_every_steps",
        0,
        "updates between evaluations",
        least=0,
        special="0 evaluates after the last step only",
    ),
    Key(
        "early_stopping.patience",
        0,
        "evaluations without a better one after which the run ends",
        least=0,
        special="0 is off",
    ),
    Key(
        "early_stopping.metric",
        "eval_top1",
        "that says which evaluation is better, and best.keras",
        choices=("eval_top1", "eval_top5", "eval_loss"),
    ),
    Key("few_shot.datasets", "", "names, separated by commas, for few-shot accuracy; empty is off"),
    Key("few_shot.shots", (1, 5, 10, 25), "images per class"),
    Key(
        "few_shot.every_steps",
        0,
        "updates between few-shot evaluations",
        least=0,
        special="0 evaluates after the last step only",
        resumable=True,
    ),
    Key("on_error", "raise", "for images that cannot be decoded", choices=("raise", "skip")),
    Key("loss_limit", 1e6, "a loss above it, infinite or NaN stops the run", least=0),
    Key(
        "profile",
        "",
        "FIRST:LAST, the steps to profile for TensorBoard; empty is off",
        resumable=True,
    ),
    Key("report", True, "whether the run ends by writing report.html", resumable=True),
)


def default_config() -> ConfigDict:
    """Returns a config with every key of `KEYS`; a recipe changes what it needs."""
    config: dict[str, Any] = {}
    for key in KEYS:
        *sections, name = key.name.split(".")
        owner = config
        for section in sections:
            owner = owner.setdefault(section, {})
        owner[name] = key.default
    return ConfigDict(config)


def table() -> Table:
    """Returns all keys with their defaults and meanings, for people."""
    rows = []
    for key in KEYS:
        notes = [key.meaning]
        if key.choices:
            notes.append(f"one of {', '.join(key.choices)}")
        if key.least is not None:
            notes.append(f"at least {key.least}")
        if key.greatest is not None:
            notes.append(f"at most {key.greatest:g}")
        if key.below is not None:
            notes.append(f"below {key.below}")
        if key.special:
            notes.append(key.special)
        rows.append((key.name, str(key.default), "; ".join(notes), "yes" if key.resumable else ""))
    return Table(("key", "default", "meaning", "may change on resumption"), rows)


def complete(config: ConfigDict | Mapping[str, Any]) -> ConfigDict:
    """Returns a copy of `config` with defaults for the keys it does not give.

    Raises:
        UsageError: for an unknown key, a value out of range, or values that contradict.
    """
    result = default_config()
    _merge(result, config, "")
    _check_values(result)
    tfds_folder.resolve_data_dir(result.data_dir)
    check_together(result)
    result.eval_batch_size = result.eval_batch_size or result.batch_size
    return result


def _check_values(config):
    values = _flatten(config.to_dict())
    for key in KEYS:
        value = values[key.name]
        if key.choices and value not in key.choices:
            raise UsageError(
                f"config.{key.name}: expected one of {', '.join(key.choices)}. Received: {value!r}."
            )
        # Python takes True for a number.
        if value is None or isinstance(value, bool) != isinstance(key.default, bool):
            kind = type(key.default).__name__
            raise UsageError(f"config.{key.name}: expected a {kind}. Received: {value!r}.")
        # Written so that NaN is refused as well.
        if key.least is not None and not value >= key.least:
            note = f" ({key.special})" if key.special else ""
            raise UsageError(
                f"config.{key.name}: expected at least {key.least}{note}. Received: {value}. "
                f"Set --config.{key.name}={key.least} or more."
            )
        greatest = key.greatest
        if greatest is None and isinstance(value, int):
            greatest = INT32
        if greatest is not None and not value <= greatest:
            raise UsageError(
                f"config.{key.name}: expected at most {greatest:g}. Received: {value:g}."
            )
        if key.below is not None and not value < key.below:
            raise UsageError(
                f"config.{key.name}: expected less than {key.below}. Received: {value:g}."
            )


def _merge(result, config, prefix):
    for key, value in config.items():
        # A model takes any argument of its constructor, which checks them itself.
        if key not in result and prefix != "model.":
            hint = did_you_mean(key, result.keys(), prefix)
            raise UsageError(
                f"Unknown config key {prefix}{key}.{hint} Known keys: {', '.join(sorted(result))}."
            )
        if isinstance(value, (dict, ConfigDict)) and isinstance(result.get(key), ConfigDict):
            _merge(result[key], value, f"{prefix}{key}.")
        else:
            try:
                result[key] = value
            except (TypeError, ValueError, OverflowError) as error:
                kind = type(result[key]).__name__ if key in result else "value of one line"
                raise UsageError(
                    f"config.{prefix}{key}: expected a {kind}. Received: {value!r}."
                ) from error


def derive_steps(config: ConfigDict, examples: int) -> None:
    """Fills in `total_steps` from `epochs`, and the length of the schedule from `total_steps`.

    Args:
        config: a complete config, changed in place.
        examples: size of the training split.

    Raises:
        UsageError: if they are more updates than can be counted.
    """
    if config.total_steps < 1:
        steps = steps_of_epochs(config.epochs, examples, config.batch_size)
        if steps > INT32:
            raise UsageError(
                f"config.epochs: expected at most {INT32} updates. Received: {config.epochs:g} "
                f"epochs, {steps} updates."
            )
        config.total_steps = steps
    if config.optimizer.total_steps < 1:
        config.optimizer.total_steps = config.total_steps


def check_warmup(config: ConfigDict) -> None:
    """Checks that the warm-up ends before the schedule does.

    Args:
        config: whose steps are derived.

    Raises:
        UsageError: if it does not.
    """
    warmup, steps = config.optimizer.warmup_steps, config.optimizer.total_steps
    if warmup >= steps:
        raise UsageError(
            f"config.optimizer.warmup_steps: expected fewer than the {steps} updates of the "
            f"schedule. Received: {warmup}. Train for more steps, or set "
            f"--config.optimizer.warmup_steps={steps // 10}."
        )


def steps_of_epochs(epochs: float, examples: int, batch_size: int) -> int:
    """Returns the number of updates in `epochs` passes over `examples`, at least 1."""
    return max(1, round(epochs * examples / batch_size))


def to_json(config: ConfigDict, data: Mapping[str, Any] | None = None) -> str:
    """Returns the config as indented JSON, keys sorted, with the data of the run if given."""
    found = config.to_dict() | ({} if data is None else {"data": data})
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns `key: old value -> new value` for all that forbids resuming `before` as `after`.

    Args:
        before, after: nested dicts, as read from `config.json`.
    """
    before, after = _flatten(before), _flatten(after)
    free = {key.name for key in KEYS if key.resumable}
    if after.get("masked.target"):
        # It has no part in masked patch prediction.
        free.add("loss")
    return [
        f"{key}: {before.get(key)!r} -> {after.get(key)!r}"
        for key in sorted(set(before) | set(after))
        if key not in free and before.get(key) != after.get(key)
    ]


def wrong_type(config: Any) -> str:
    """Returns what is wrong with a config that was read from JSON, or "" if all types are right."""
    if not isinstance(config, dict):
        return f"expected an object, received a {type(config).__name__}"
    if not set(default_config()) & set(config):
        return "it has no key of a config"
    if not fingerprint.is_description(config.get("data")):
        return "data, what the run was trained on, is missing or incomplete"
    for key in KEYS:
        *sections, last = key.name.split(".")
        owner = config
        for number, section in enumerate(sections):
            owner = owner.get(section, {})
            if not isinstance(owner, dict):
                return f"{'.'.join(sections[: number + 1])} is {owner!r}"
        value, kind = owner.get(last, key.default), type(key.default)
        # JSON knows no tuples, and writes 1.0 as one likes.
        if not isinstance(value, {float: (int, float), tuple: (list, tuple)}.get(kind, kind)):
            return f"{key.name} is {value!r}, expected a {kind.__name__}"
    return ""


def shared_by_processes(config: ConfigDict) -> dict[str, Any]:
    """Returns {key with its sections: value} of all that the processes of a job have in common."""
    own = {key.name for key in KEYS if key.own}
    flat = _flatten(config.to_dict())
    return {name: value for name, value in flat.items() if name not in own}


def _flatten(config, prefix=""):
    flat = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
