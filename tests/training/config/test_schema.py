import math

import pytest
from ml_collections import ConfigDict

from keras_vit.training.config import schema
from keras_vit.training.errors import UsageError
from keras_vit.training.recipes import losses, optimizers, schedules


def minimal(**values):
    return {"dataset": "digits", "batch_size": 8, "total_steps": 3, **values}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bach_size": 4}, "Did you mean batch_size"),
        ({"strategy": "mirored"}, r"^Did you mean mirrored\? config.strategy: expected one of"),
        ({"optimizer": {"lr": 1.0}}, "optimizer.lr"),
        ({"strategy": "all"}, "one, mirrored, multiworker, tpu"),
        ({"batch_size": 6, "accumulation_steps": 4}, "multiple of config.accumulation_steps"),
        ({"total_steps": 0}, "total_steps or config.epochs"),
        ({"dataset": ""}, "name of a data set"),
        ({"seed": "zero"}, "seed: expected a whole number, at least 0 and at most 2147483647. Rec"),
        ({"freeze": {"until_step": 5}}, "to say what is frozen. Received: freeze.until_step=5, "),
        ({"freeze": {"blocks": 1}, "lora": {"rank": 4}}, "no config.freeze.* beside it"),
        ({"lora": {"alpha": 4.0}}, "expected config.lora.rank beside it"),
        ({"optimizer": {"momentum": 0.5}}, "expected config.optimizer.name=sgd beside it"),
        ({"optimizer": {"name": "sgd", "beta_2": 0.9}}, "name=adamw beside it"),
        ({"masked": {"corruption_rate": 0.4}}, "expected config.masked.target beside it"),
        ({"few_shot": {"shots": (3,)}}, "expected config.few_shot.datasets beside it"),
        ({"lora": {"rank": 4}}, "config.checkpoint: expected the weights"),
        ({"freeze": {"head_only": True}}, "config.checkpoint: expected the weights"),
        ({"masked": {"target": "pixels"}, "label_smoothing": 0.1}, "no lora.rank, label_smo"),
        ({"masked": {"target": "pixels"}, "eval_split": "test"}, "eval_split: expected ''"),
        ({"masked": {"target": "pixels"}, "freeze": {"blocks": 1}}, r"freeze\.\* beside it"),
        ({"early_stopping": {"patience": 3}}, "expected evaluations to compare"),
        ({"early_stopping": {"patience": 3}, "eval_split": "test"}, "config.eval_every_steps"),
        ({"early_stopping": {"metric": "loss"}}, "eval_top1, eval_top5, eval_loss"),
        (
            {"strategy": "sharded", "processes": {"count": 2, "index": 1}},
            r"coordinator: expected .host:port. .*coordinator='', .*count=2, processes\.index=1",
        ),
        ({"strategy": "sharded", "processes": {"index": 1}}, "processes.coordinator: expected"),
        (
            {"strategy": "sharded", "processes": {"coordinator": "somewhere"}},
            "coordinator: expected .host:port. of process 0",
        ),
        (
            {"strategy": "sharded", "processes": {"coordinator": "h:1", "count": 2, "index": 2}},
            r"processes\.index: expected less than .*index=2, processes\.count=2",
        ),
        ({"processes": {"count": 2}}, r"config\.processes: expected config\.strategy=.sharded"),
        ({"processes": {"coordinator": "auto"}}, "coordinator='auto', strategy='one'"),
        (
            {"strategy": "mirrored", "mesh": {"data": 2}},
            "data=2, mesh.fsdp=1, strategy='mirrored'",
        ),
        (
            {"tpu": "local"},
            r"config\.tpu: expected config.strategy=tpu beside it.*strategy='one'",
        ),
        ({"checkpoint_head": "keep"}, "checkpoint_head: expected config.checkpoint beside it"),
        ({"mesh": {"fsdp": -1}}, "config.mesh: expected .*fsdp=-1, strategy='one'"),
    ],
)
def test_names_what_cannot_work(values, message):
    with pytest.raises(UsageError, match=message):
        schema.complete(ConfigDict(minimal(**values)))


def nested(key, value):
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


# Of other numbers the least is 0.
LEAST_ONE = {
    *("accumulation_steps", "batch_size", "few_shot.shots", "keep_checkpoints"),
    *("log_every_steps", "peer_timeout", "processes.count", "steps_per_call"),
}
LEAST = {"mesh.data": -1, "mesh.fsdp": -1} | dict.fromkeys(LEAST_ONE, 1)


def test_every_number_has_its_least():
    for key in schema.KEYS:
        if not isinstance(key.default, (bool, str)):
            least = LEAST.get(key.name, 0)
            kind = (lambda value: (value,)) if key.name == "few_shot.shots" else type(key.default)
            assert key.accepts(kind(least)) and not key.accepts(kind(least - 1)), key.name
            assert f", at least {least}" in key.expected


@pytest.mark.parametrize(
    "key, value",
    [
        ("steps_per_call", {".": 0}),
        ("optimizer.momentum", 2.0),
        ("optimizer.beta_1", 1.0),
        ("optimizer.beta_2", 1e308),
        ("ema_decay", 1.0),
        ("label_smoothing", 1.0),
        ("optimizer.layer_decay", 1.1),
        ("masked.corruption_rate", 1.5),
        ("seed", 2**40),
        ("total_steps", 10**30),
        ("epochs", 10**400),
        ("loss_limit", 10**400),
        ("few_shot.shots", (-1, 0)),
        ("few_shot.shots", (1, True)),
        ("few_shot.shots", (1, 2.5)),
        ("few_shot.shots", ()),
        ("few_shot.shots", 5),
    ],
)
def test_senseless_numbers_are_refused(key, value):
    with pytest.raises(UsageError, match=rf"config\.{key}: expected .* Received: "):
        schema.complete(minimal(epochs=1.0) | nested(key, value))


def test_every_number_has_bounds_and_none_may_be_none():
    for key in schema.KEYS:
        if type(key.default) in (int, float):
            # Infinite is off.
            infinite = key.name in ("checkpoint_every_minutes", "loss_limit")
            assert key.accepts(math.inf) == infinite
            assert not key.accepts(math.nan) and not key.accepts(True)
        with pytest.raises(UsageError, match=rf"config\.{key.name}: expected"):
            schema.complete(ConfigDict(minimal() | nested(key.name, None)))


def test_more_updates_than_can_be_counted_are_refused():
    config = schema.complete(ConfigDict(minimal(total_steps=0, epochs=1e9)))
    with pytest.raises(UsageError, match=r"config\.epochs: expected at most 2147483647 updates"):
        schema.derive_steps(config, 10**6)


@pytest.mark.parametrize("steps", [{"total_steps": 20}, {"total_steps": 0, "epochs": 1.6}])
def test_a_warm_up_as_long_as_the_schedule_is_refused_by_its_flag(steps):
    config = schema.complete(minimal(optimizer={"warmup_steps": 20}) | steps)
    with pytest.raises(UsageError, match=r"than the 20 .*--config\.optimizer\.warmup_steps=2\."):
        schema.derive_steps(config, 100)


def test_a_run_has_a_step_at_least():
    config = schema.complete(minimal(total_steps=0, epochs=1, batch_size=4096))
    schema.derive_steps(config, 10)
    assert config.total_steps == 1


def test_differences_are_what_changes_the_result():
    before = schema.complete(ConfigDict(minimal())).to_dict()
    after = schema.complete(
        ConfigDict(minimal(seed=1, strategy="mirrored", optimizer={"base_lr": 0.5}))
    ).to_dict()
    assert schema.differences(before, after) == [
        "optimizer.base_lr: 0.001 -> 0.5",
        "seed: 0 -> 1",
    ]


def test_a_masked_run_that_named_a_loss_is_the_same_run():
    after = schema.complete(ConfigDict(minimal(masked={"target": "mean_color"}))).to_dict()
    assert schema.differences(after | {"loss": "own"}, after) == []
    classifier = schema.complete(ConfigDict(minimal())).to_dict()
    assert schema.differences(classifier | {"loss": "sigmoid"}, classifier)


def test_choices_are_what_is_there():
    choices = {key.name: key.choices for key in schema.KEYS}
    assert choices["loss"] == tuple(losses.LOSSES)
    assert choices["optimizer.name"] == tuple(optimizers.OPTIMIZERS)
    assert choices["optimizer.schedule"] == schedules.DECAYS
