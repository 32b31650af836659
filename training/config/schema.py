"""The keys of a training config as one table, and the rules between them."""

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from keras_vit.name_suggestions import did_you_mean

from ..errors import UsageError
from ..io.paths import any_path
from ..tasks import LOSS, METRICS, TASKS, task_of

# The largest of the numbers that Keras counts updates in, and that weights are computed in.
INT32 = 2**31 - 1
FLOAT32 = 3.4e38
KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "whole numbers, separated by commas",
}


class Key(NamedTuple):
    """One key of a config."""

    name: str  # with its section, such as `optimizer.base_lr`
    default: Any  # also fixes the type
    meaning: str  # one line
    choices: tuple[str, ...] = ()  # all values that it can have; empty for any
    least: int = 0  # of a number, or each of several
    greatest: float | None = None  # of a number; None is the largest that can be computed with
    below: int | None = None  # a number is smaller than this
    resumable: bool = False  # whether a resumed run may change it: where and how it computes
    own: bool = False  # whether the processes of a job may have several values

    @property
    def expected(self) -> str:
        """The values that it can have, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        kind = KINDS[type(self.default)]
        if isinstance(self.default, (bool, str)):
            return kind
        end = "" if self._greatest == math.inf else f" and at most {self._greatest}"
        end = end if self.below is None else f" and below {self.below}"
        return f"{kind}, at least {self.least}{end}"

    def accepts(self, value: Any) -> bool:
        """Whether it can have a value. A list stands for a tuple, a whole number for any."""
        kind = type(self.default)
        if self.choices:
            return value in self.choices
        if kind in (bool, str):
            return isinstance(value, kind)
        numbers = value if kind is tuple else [value]
        # Python takes True for a number. NaN is not within.
        return bool(isinstance(numbers, (list, tuple)) and numbers) and all(
            isinstance(each, (int, float) if kind is float else int)
            and not isinstance(each, bool)
            and self.least <= each <= self._greatest
            # Whole numbers must convert to float.
            and (isinstance(each, float) or each <= FLOAT32)
            and (self.below is None or each < self.below)
            for each in numbers
        )

    @property
    def _greatest(self):
        default = FLOAT32 if isinstance(self.default, float) else INT32
        return default if self.greatest is None else self.greatest


# Those of `keras_vit.optimizers`, which imports Keras; and why others are none of them.
_OF_KERAS = "Adadelta Adagrad Adam AdamW Adamax Ftrl Lamb Lion Muon RMSprop SGD"
_NOT_RESUMABLE = {
    "keras.Nadam": "it keeps a product of all steps outside of its variables",
    "keras.Adafactor": "its variables share one name",
    "keras.ScheduleFreeAdamW": "it evaluates other weights than it trains",
}
# A key that a resumed run may change: where and how it computes.
_Free = functools.partial(Key, resumable=True)

KEYS = (
    Key("seed", 0, "of weights, data order, augmentation and dropout"),
    _Free(
        "strategy",
        "one",
        "one device; TensorFlow: all GPUs of a host, several hosts, a TPU; JAX: a mesh of devices",
        ("one", "mirrored", "multiworker", "tpu", "sharded"),
    ),
    _Free("mesh.data", -1, "sharded: devices for batches; -1 is all that are left", least=-1),
    _Free("mesh.fsdp", 1, "sharded: those for weights too; -1 is all that are left", least=-1),
    _Free(
        "processes.coordinator",
        "",
        "of sharded: host:port of process 0, or auto for what JAX detects; empty is one process, "
        "or auto on a TPU slice of several hosts",
        own=True,
    ),
    _Free("processes.count", 1, "number of processes", least=1),
    _Free("processes.index", 0, "number of this process, from 0", own=True),
    _Free("tpu", "", "name of the TPU, `local`, or its grpc:// address"),
    _Free("tpu_zone", "", "Google Cloud zone of the TPU"),
    _Free("tpu_project", "", "Google Cloud project of the TPU"),
    _Free("peer_timeout", 45, "seconds that a process waits for another's answer", least=1),
    Key("checkpoint", "", "file or published name of the weights to start from; empty starts anew"),
    _Free("expects_checkpoint", False, "whether a run without a checkpoint warns: it fine-tunes"),
    Key(
        "checkpoint_head",
        "new",
        "an untrained head, or the checkpoint's; auto keeps one of the same classes",
        ("new", "keep", "auto"),
    ),
    _Free("data_dir", "", "folder of TensorFlow Datasets; empty is its default", own=True),
    Key("model.name", "", "of a variant, or empty; beside it any argument of the constructor"),
    Key("dataset", "", "one of `keras-vit data list`, or folder:, csv:, tfds: and more"),
    Key("train_split", "train", "split of the data set"),
    Key("eval_split", "", "split of the data set; empty never evaluates"),
    Key("train_preprocess", "", "operations, separated by |"),
    Key("eval_preprocess", "", "operations, separated by |"),
    _Free("data_changed", "refuse", "whether to resume with changed data", ("refuse", "accept")),
    Key(
        "cache",
        "off",
        "whether decoded images stay in memory after the first epoch; auto: those that fit",
        ("off", "auto", "on"),
    ),
    Key(
        "reduced_decoding.train",
        0.0,
        "decodes JPEGs at 1/2, 1/4 or 1/8 where that leaves at least so many times the rows and "
        "columns that they are resized to; 0 is off, as in published recipes",
    ),
    Key("reduced_decoding.eval", 0.0, "the same in evaluations; 0 is off, as in published numbers"),
    Key("batch_size", 0, "images per update, over all devices", least=1),
    Key("eval_batch_size", 0, "images per step of evaluation, over all devices; 0 is batch_size"),
    Key("total_steps", 0, "number of updates; 0 derives it from epochs"),
    Key("epochs", 0.0, "passes over the training split; 0 is total_steps", greatest=INT32),
    *(Key(*row, **more) for task in TASKS for *row, more in task.keys),
    Key(
        "distill.teacher",
        "",
        "run, .keras file, published classifier or MODEL=CHECKPOINT to learn from, several "
        "separated by commas; empty is off",
    ),
    Key(
        "distill.loss",
        "kl",
        "distance from a teacher's logits",
        ("kl", "soft", "hard", "l2", "none"),
    ),
    Key("distill.temperature", 1.0, "that divides both logits of kl and soft"),
    Key(
        "distill.features",
        "",
        "STUDENT=TEACHER, endpoints whose squared distance, after a learned projection, is added; "
        "several separated by commas",
    ),
    Key("distill.features_weight", 1.0, "factor of that distance"),
    Key("distill.label_weight", 0.0, "part of the loss that is of labels; 0 uses none", below=1),
    Key("mixup_p", 0.0, "parameter of MixUp's beta distribution; 0 is off"),
    Key(
        "optimizer.name",
        "adamw",
        "SGD with momentum and AdamW as in the original, or a class of keras.optimizers, to which "
        "momentum, beta_1 and beta_2 go where its constructor takes them",
        ("sgd", "adamw", *(f"keras.{name}" for name in _OF_KERAS.split())),
    ),
    Key("optimizer.base_lr", 1e-3, "learning rate at the end of the warm-up"),
    Key("optimizer.schedule", "cosine", "decay after the warm-up", ("cosine", "linear", "poly")),
    Key("optimizer.warmup_steps", 0, "updates of linear warm-up from rate 0; 0 is no warm-up"),
    Key("optimizer.total_steps", 0, "length of the schedule; 0 is total_steps"),
    Key("optimizer.end_lr", 0.0, "learning rate after the last update"),
    Key("optimizer.momentum", 0.9, "of SGD", below=1),
    Key("optimizer.nesterov", False, "whether SGD looks ahead, as timm's does"),
    Key("optimizer.weight_decay", 0.0, "decoupled, relative to the rate, on kernels only"),
    Key("optimizer.clip_norm", 0.0, "largest global norm of the gradients; 0 does not clip"),
    Key("optimizer.beta_1", 0.9, "decay of AdamW's first moment", below=1),
    Key("optimizer.beta_2", 0.999, "decay of AdamW's second moment", below=1),
    Key("optimizer.first_moment_dtype", "float32", "how it is stored", ("float32", "bfloat16")),
    Key(
        "optimizer.layer_decay",
        1.0,
        "factor of the rate from each block to the one before; embeddings are lowest, the head "
        "has the whole rate; 1 is off",
        greatest=1,
    ),
    Key(
        "freeze.layers",
        "",
        "layers whose weights stay as they are: names or patterns such as `encoder_block_0?`, "
        "separated by commas; empty freezes none",
    ),
    Key("freeze.blocks", 0, "first blocks that stay as they are, with all before them; 0 is none"),
    Key("freeze.head_only", False, "whether all but the head stay as they are"),
    Key("freeze.until_step", 0, "update after which frozen weights train as well; 0 is never"),
    Key("lora.rank", 0, "of the factors that train in place of the encoder's kernels; 0 is off"),
    Key("lora.alpha", 0.0, "scale of the factors' product, times the rank; 0 is the rank"),
    Key("ema_decay", 0.0, "of the moving average of weights that is evaluated; 0 is off", below=1),
    Key("accumulation_steps", 1, "micro-batches that a device's part is computed in", least=1),
    _Free("steps_per_call", 1, "updates per call from the host", least=1),
    Key("precision", "float32", "of computations, not of weights", ("float32", "mixed_bfloat16")),
    _Free(
        "jit_compile",
        "auto",
        "whether XLA compiles the step; on TPU and with JAX it always does; auto: on GPUs, and "
        "1,000 updates or more on processors with AMX",
        ("auto", "on", "off"),
    ),
    _Free("checkpoint_every_steps", 1000, "updates between saved states; 0 goes by minutes only"),
    _Free("checkpoint_every_minutes", 10.0, "longest time between saved states", greatest=math.inf),
    _Free("keep_checkpoints", 2, "saved states kept", least=1),
    _Free("log_every_steps", 50, "updates between rows of metrics.csv", least=1),
    Key("eval_every_steps", 0, "updates between evaluations; 0 evaluates after the last step only"),
    Key("early_stopping.patience", 0, "evaluations without a better one before the end; 0 is off"),
    Key(
        "early_stopping.metric",
        "",
        "that says which evaluation is better, and best.keras; empty is the task's main one",
        ("", *METRICS),
    ),
    _Free("hand_over", "last", "evaluation whose weights model.keras has", ("last", "best")),
    Key("few_shot.datasets", "", "names, separated by commas, for few-shot accuracy; empty is off"),
    Key("few_shot.shots", (1, 5, 10, 25), "images per class", least=1),
    Key("few_shot.neighbors", 0, "of k-NN accuracy beside it, 20 as DINO measures; 0 is off"),
    Key("few_shot.probe", False, "whether to add the linear probe on all training images"),
    _Free("few_shot.every_steps", 0, "updates between few-shot evaluations; 0 is one at the end"),
    Key("on_error", "raise", "for images that cannot be decoded", ("raise", "skip")),
    Key("loss_limit", 1e6, "a loss above it, infinite or NaN stops the run", greatest=math.inf),
    _Free("profile", "", "FIRST:LAST, the steps to profile for TensorBoard; empty is off"),
    _Free("report", True, "whether the run ends by writing report.html"),
)
_BY_NAME = {key.name: key for key in KEYS}
DEFAULTS = {key.name: key.default for key in KEYS}
_SECTIONS = {key.name.partition(".")[0] for key in KEYS if "." in key.name}
COLUMNS = ("key", "default", "meaning", "may change on resumption")
# {a key, with its value where not any will do: the keys that mean nothing without it}
_BESIDE = {
    "checkpoint": "checkpoint_head",
    "distill.teacher": "distill.loss distill.temperature distill.label_weight distill.features",
    "distill.features": "distill.features_weight",
    "distill.loss=kl|soft": "distill.temperature",
    "eval_split": "early_stopping.metric hand_over calibration.temperature calibration.accuracy",
    "loss=softmax": "calibration.temperature calibration.accuracy",
    "few_shot.datasets": "few_shot.every_steps few_shot.neighbors few_shot.probe few_shot.shots",
    "lora.rank": "lora.alpha",
    **{each.chosen_by: " ".join(name for name, *_ in each.keys[1:]) for each in TASKS[1:]},
    "optimizer.name=adamw": "optimizer.beta_1 optimizer.beta_2",
    "optimizer.name=sgd": "optimizer.momentum optimizer.nesterov",
    "strategy=tpu": "tpu tpu_project tpu_zone",
}
# Arguments of models, and the keys of a config that stand for them.
NOT_OF_MODEL = {"dtype": "precision", "trainable": "freeze.*", "weights": "checkpoint"}


def _broken_rules(c: ConfigDict) -> Iterator[tuple[str, str]]:
    """Yields (keys, what is expected of the first) of rules between keys that a config breaks."""
    task, frozen = task_of(c), c.freeze.layers or c.freeze.blocks or c.freeze.head_only
    freeze, processes = "freeze.layers freeze.blocks freeze.head_only", c.processes
    several, flat = processes.count > 1 or processes.index, flatten(c)
    for beside, keys in _BESIDE.items():
        other, _, value = beside.partition("=")
        changed = [key for key in keys.split() if flat[key] != DEFAULTS[key]]
        # `build_optimizer` knows the arguments of Keras's own.
        fits = flat[other]
        if value:
            fits = flat[other] in value.split("|") or "keras." in flat[other]
        if changed and not fits:
            yield f"{changed[0]} {other}", f"config.{beside.replace('|', ' or ')} beside it"
    for name, key in NOT_OF_MODEL.items():
        if name in c.model:
            yield f"model.{name}", f"config.{key} in its place"
    if not c.dataset:
        yield "dataset", "the name of a data set"
    if not (c.optimizer.base_lr or c.optimizer.end_lr):
        yield "optimizer.base_lr optimizer.end_lr", "a rate above 0: no weight would change"
    if not (c.total_steps or c.epochs):
        yield "total_steps epochs", "config.total_steps or config.epochs to be positive"
    if c.batch_size % c.accumulation_steps:
        yield "batch_size accumulation_steps", "a multiple of config.accumulation_steps"
    for split, least in c.reduced_decoding.items():
        if 0 < least < 1:
            yield f"reduced_decoding.{split}", "0, or 1 or more times the pixels wanted"
    for unused, expected in task.unused:
        if changed := [key for key in unused.split() if flat[key] != DEFAULTS[key]]:
            yield f"{' '.join(changed)} {task.chosen_by}", expected
    known = [each.column for each in (*task.metrics, LOSS)]
    if c.early_stopping.metric not in ("", *known):
        yield "early_stopping.metric", f"one of {', '.join(known)}, the metrics of its task"
    if c.early_stopping.patience and not (c.eval_split and c.eval_every_steps):
        keys = "early_stopping.patience eval_split eval_every_steps"
        yield keys, "config.eval_split and config.eval_every_steps: evaluations to compare"
    if c.distill.loss == "none" and not c.distill.features:
        yield "distill.loss distill.features", "config.distill.features beside none"
    if not c.distill.temperature:
        yield "distill.temperature", "more than 0"
    if c.freeze.until_step and not frozen:
        yield f"freeze.until_step {freeze}", "another key of config.freeze to say what is frozen"
    if c.lora.rank and frozen:
        yield f"lora.rank {freeze}", "no config.freeze.* beside it: LoRA freezes all but the head"
    if (c.lora.rank or c.freeze.head_only) and not c.checkpoint:
        keys = "checkpoint lora.rank freeze.head_only"
        yield keys, "the weights that LoRA and freeze.head_only leave as they are"
    if c.strategy != "sharded":
        remedy = 'config.strategy="sharded" beside it, which KERAS_BACKEND=jax runs'
        if several or processes.coordinator:
            keys = "processes processes.count processes.index processes.coordinator strategy"
            yield keys, f"{remedy}; multiworker reads TF_CONFIG"
        if c.mesh.data > 1 or c.mesh.fsdp != 1:
            yield "mesh mesh.data mesh.fsdp strategy", remedy
    steps = c.profile.split(":")
    if c.profile and not (
        len(steps) == 2 and all(map(str.isdecimal, steps)) and int(steps[0]) < int(steps[1])
    ):
        yield "profile", '"FIRST:LAST" steps'
    if not re.fullmatch(r"auto|.+:\d+" if several else r"|auto|.+:\d+", processes.coordinator):
        keys = "processes.coordinator processes.count processes.index"
        yield keys, '"host:port" of process 0, or "auto": without it each would train alone'
    if processes.index >= processes.count:
        yield "processes.index processes.count", "less than config.processes.count"


def default_config() -> ConfigDict:
    """Returns a config with every key of `KEYS`; a recipe changes what it needs."""
    return nested(DEFAULTS)


def rows() -> list[tuple[str, ...]]:
    """Returns a row of text for each key, under `COLUMNS`."""
    return [
        (k.name, str(k.default), f"{k.meaning}; {k.expected}", "yes" if k.resumable else "")
        for k in KEYS
    ]


def complete(config: ConfigDict | Mapping[str, Any]) -> ConfigDict:
    """Returns a copy of `config` with defaults for the keys it does not give.

    Raises `UsageError` for an unknown key, a value out of range, or values that contradict.
    """
    flat = DEFAULTS | flatten(config)
    # A model takes any argument of its constructor, which checks them itself.
    if unknown := [name for name in flat if name not in DEFAULTS and name[:6] != "model."]:
        raise unknown_key_error(unknown[0])
    for key in KEYS:
        value = flat[key.name]
        if not key.accepts(value):
            hint = did_you_mean(str(value), key.choices)
            expected = f"config.{key.name}: expected {key.expected}"
            if reason := _NOT_RESUMABLE.get(str(value)):
                hint = f"A run with {value} cannot be resumed exactly: {reason}. "
            raise UsageError(f"{hint}{expected}. Received: {value!r}.")
        flat[key.name] = type(key.default)(value)
    result = nested(flat)
    for name, value in flat.items():
        try:
            json.dumps(value)
        except TypeError as error:
            raise UsageError(f"config.{name}: expected a value of JSON. {error}.") from error
    if result.data_dir:
        any_path(result.data_dir)
    for keys, expected in _broken_rules(result):
        received = ", ".join(f"{name}={flat[name]!r}" for name in keys.split() if name in flat)
        raise UsageError(f"config.{keys.split()[0]}: expected {expected}. Received: {received}.")
    result.eval_batch_size = result.eval_batch_size or result.batch_size
    return result


def unknown_key_error(name: str) -> UsageError:
    """Returns the error of an unknown key, with the closest key, or all keys of its section."""
    section, _, last = name.rpartition(".")
    by_last = {each.rpartition(".")[2]: each for each in DEFAULTS}
    hint = did_you_mean(name, DEFAULTS) or did_you_mean(last, by_last, by_last)
    known = [each for each in DEFAULTS if each.startswith(f"{section or name}.")] or DEFAULTS
    keys = "" if hint else f" Known keys: {', '.join(known)}."
    return UsageError(f"{hint}Unknown config key {name}.{keys} --helpfull explains all.")


def derive_steps(
    config: ConfigDict, examples: int, before: Mapping[str, Any] | None = None
) -> None:
    """Fills in `total_steps` from `epochs`, and the length of the schedule from `total_steps`.

    Changes a complete config in place. `examples` is the size of the training split; the steps of
    a resumed run, whose config is `before`, stay when its data has changed. Raises `UsageError` for
    more updates than can be counted, no more than the warm-up's, or if they end before the first
    that is profiled or that trains what `freeze` names.
    """
    if config.total_steps < 1 and before and before.get("epochs") == config.epochs:
        config.total_steps = before.get("total_steps", 0)
    if config.total_steps < 1:
        steps = max(1, round(config.epochs * examples / config.batch_size))
        if steps > INT32:
            raise UsageError(
                f"config.epochs: expected at most {INT32} updates. Received: {config.epochs:g} "
                f"epochs, {steps} updates."
            )
        config.total_steps = steps
    length = config.total_steps
    if before and before["total_steps"] != length:
        # The past of the schedule stays what it was, unless the run goes on beyond its end.
        was = before["optimizer"]["total_steps"]
        length = max(length, was) if was == before["total_steps"] else was
    steps = config.optimizer.total_steps = config.optimizer.total_steps or length
    if config.optimizer.warmup_steps >= steps:
        raise UsageError(
            f"config.optimizer.warmup_steps: expected fewer than the {steps} updates of the "
            f"schedule. Received: {config.optimizer.warmup_steps}. Train for more steps, or set "
            f"--config.optimizer.warmup_steps={steps // 10}."
        )
    if config.freeze.until_step >= config.total_steps:
        raise UsageError(
            f"config.freeze.until_step: expected below {config.total_steps}, the last. Received: "
            f"{config.freeze.until_step}. 0 freezes to the end of the run."
        )
    if config.profile and int(config.profile.partition(":")[0]) >= config.total_steps:
        raise UsageError(
            f"config.profile: expected a first step below {config.total_steps}, the last. "
            f"Received: {config.profile}."
        )


def to_json(config: ConfigDict, data: Mapping[str, Any] | None = None) -> str:
    """Returns the config as indented JSON, keys sorted, with the data of the run if given."""
    found = config.to_dict() | ({} if data is None else {"data": data})
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], stopped: bool = False
) -> list[str]:
    """Returns `key: old value -> new value` for all that forbids resuming `before` as `after`.

    Both are nested dicts, as read from `config.json`. A run that was `stopped` before its end
    may become shorter or longer.
    """
    before, after = flatten(before), flatten(after)
    free = {key.name for key in KEYS if key.resumable}
    free |= {"total_steps", "epochs", "optimizer.total_steps"} if stopped else set()
    return [
        f"{key}: {before.get(key)!r} -> {after.get(key)!r}"
        for key in sorted((before.keys() | after.keys()) - free)
        if before.get(key) != after.get(key)
    ]


def damage(config: Any) -> str:
    """Returns what is wrong with a config that was read from JSON, or "" if nothing is."""
    if not isinstance(config, dict):
        return f"expected an object, received a {type(config).__name__}"
    if not default_config().keys() & config.keys():
        return "it has no key of a config"
    for name, value in flatten(config).items():
        key = _BY_NAME.get(name)
        if name in _SECTIONS or (key and not key.accepts(value)):
            return f"{name} is {value!r}, expected {key.expected if key else 'an object'}"
    return ""


def flatten(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """Returns {key with its section: value} of a nested config."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if name in _SECTIONS and isinstance(value, (ConfigDict, Mapping)):
            values = value.to_dict() if isinstance(value, ConfigDict) else value
            flat |= {f"{name}.{key}": each for key, each in values.items()}
        else:
            flat[name] = value
    return flat


def nested(flat: Mapping[str, Any]) -> ConfigDict:
    """Returns the config of {key with its section: value}, the inverse of `flatten`."""
    config: dict[str, Any] = {}
    for name, value in flat.items():
        section, _, last = name.rpartition(".")
        (config.setdefault(section, {}) if section else config)[last] = value
    return ConfigDict(config)
