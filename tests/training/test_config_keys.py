import pytest
from ml_collections import ConfigDict

from training import config_keys
from training.errors import UsageError
from training.recipes import losses, optimizers, schedules


def minimal(**values):
    return {"dataset": "digits", "batch_size": 8, "total_steps": 3, **values}


def test_fills_in_defaults():
    config = config_keys.complete(ConfigDict(minimal()))
    assert config.eval_batch_size == 8
    assert config.optimizer.beta_2 == 0.999


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bach_size": 4}, "Did you mean batch_size"),
        ({"optimizer": {"lr": 1.0}}, "optimizer.lr"),
        ({"strategy": "all"}, "one, mirrored, multiworker, tpu"),
        ({"batch_size": 6, "accumulation_steps": 4}, "multiple of config.accumulation_steps"),
        ({"total_steps": 0}, "total_steps or config.epochs"),
        ({"dataset": ""}, "name of a data set"),
        ({"seed": "zero"}, "expected a int"),
        ({"freeze": {"until_step": 5}}, "to say what is frozen. Received: 5 alone"),
        ({"freeze": {"blocks": 1}, "lora": {"rank": 4}}, "Leave config.freeze.* out"),
        ({"lora": {"alpha": 4.0}}, "expected config.lora.rank beside it"),
        ({"lora": {"rank": 4}}, "config.checkpoint: expected the weights"),
        ({"freeze": {"head_only": True}}, "config.checkpoint: expected the weights"),
        ({"masked": {"target": "pixels"}, "label_smoothing": 0.1}, "without labels"),
        ({"masked": {"target": "pixels"}, "freeze": {"blocks": 1}}, "whole encoder"),
        ({"early_stopping": {"patience": 3}}, "expected evaluations to compare"),
        ({"early_stopping": {"patience": 3}, "eval_split": "test"}, "config.eval_every_steps"),
        ({"early_stopping": {"metric": "loss"}}, "eval_top1, eval_top5, eval_loss"),
        (
            {"strategy": "sharded", "processes": {"count": 2, "index": 1}},
            r"coordinator: expected .host:port. .*count=2, index=1 and no coordinator",
        ),
        ({"strategy": "sharded", "processes": {"index": 1}}, "processes.coordinator: expected"),
        ({"processes": {"count": 2}}, r"processes: expected config\.strategy=.sharded"),
        ({"processes": {"coordinator": "auto"}}, "coordinator='auto' and strategy='one'"),
        ({"strategy": "mirrored", "mesh": {"data": 2}}, "mesh: expected .*data=2, fsdp=1 and"),
        ({"mesh": {"fsdp": -1}}, "mesh: expected .*fsdp=-1 and strategy='one'"),
    ],
)
def test_names_what_cannot_work(values, message):
    with pytest.raises(UsageError, match=message):
        config_keys.complete(ConfigDict(minimal(**values)))


def nested(key, value):
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


LEAST = [
    ("accumulation_steps", 1),
    ("batch_size", 1),
    ("checkpoint_every_minutes", 0.0),
    ("checkpoint_every_steps", 0),
    ("epochs", 0.0),
    ("eval_batch_size", 0),
    ("eval_every_steps", 0),
    ("few_shot.every_steps", 0),
    ("keep_checkpoints", 1),
    ("log_every_steps", 1),
    ("optimizer.total_steps", 0),
    ("optimizer.warmup_steps", 0),
    ("peer_timeout", 1),
    ("steps_per_call", 1),
    ("total_steps", 0),
]


@pytest.mark.parametrize(("key", "least"), LEAST)
def test_counts_below_their_least_are_refused(key, least):
    for value in (least - 1, least - 100):
        with pytest.raises(UsageError) as caught:
            config_keys.complete(ConfigDict(minimal(epochs=1.0) | nested(key, value)))
        message = str(caught.value)
        assert message.startswith(f"config.{key}: expected at least {int(least)}")
        assert f"Received: {value}. Set --config.{key}={int(least)} or more." in message


@pytest.mark.parametrize(("key", "least"), LEAST)
def test_the_least_count_is_accepted(key, least):
    config_keys.complete(ConfigDict(minimal(epochs=1.0) | nested(key, least)))


def test_every_count_among_the_keys_has_a_least():
    counts = ("_steps", "_size", "_minutes", "_checkpoints", "_timeout", "_per_call")
    found = []
    for key, value in config_keys.default_config().items():
        inner = value.items() if isinstance(value, ConfigDict) else [("", value)]
        found += [f"{key}.{name}".rstrip(".") for name, _ in inner]
    found = {key for key in found if key.endswith(counts)}
    assert found | {"epochs"} == {key for key, _ in LEAST}


def test_a_length_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match=r"config\.epochs: expected at least 0 .*Received: nan"):
        config_keys.complete(ConfigDict(minimal(epochs=float("nan"))))


@pytest.mark.parametrize(
    "key, value",
    [
        ("optimizer.base_lr", -1.0),
        ("optimizer.base_lr", float("nan")),
        ("optimizer.end_lr", float("inf")),
        ("optimizer.weight_decay", float("inf")),
        ("optimizer.weight_decay", -0.1),
        ("optimizer.clip_norm", -1.0),
        ("optimizer.momentum", 2.0),
        ("optimizer.beta_1", 1.0),
        ("optimizer.beta_2", 1e308),
        ("ema_decay", 1.0),
        ("mixup_p", -0.2),
        ("label_smoothing", 1.0),
        ("optimizer.layer_decay", 1.1),
        ("freeze.blocks", -1),
        ("lora.rank", -1),
        ("lora.alpha", float("nan")),
        ("early_stopping.patience", -1),
        ("masked.corruption_rate", 1.5),
        ("loss_limit", -1.0),
        ("seed", -1),
        ("seed", 2**40),
        ("total_steps", 10**30),
        ("epochs", float("inf")),
        ("epochs", 10**400),
        ("eval_batch_size", False),
    ],
)
def test_senseless_numbers_are_refused(key, value):
    with pytest.raises(UsageError, match=rf"config\.{key}: expected .* Received: "):
        config_keys.complete(ConfigDict(minimal(epochs=1.0) | nested(key, value)))


def test_a_section_in_place_of_a_number_is_refused():
    with pytest.raises(UsageError, match=r"config\.steps_per_call: expected a int"):
        config_keys.complete(minimal() | {"steps_per_call": {".": 0}})


def test_every_number_has_bounds_and_none_may_be_none():
    for key in config_keys.KEYS:
        if isinstance(key.default, float) and key.name not in (
            # Infinite is off.
            "checkpoint_every_minutes",
            "loss_limit",
        ):
            assert key.least is not None and (key.greatest or key.below), key.name
        with pytest.raises(UsageError, match=rf"config\.{key.name}: expected"):
            config_keys.complete(ConfigDict(minimal() | nested(key.name, None)))


def test_more_updates_than_can_be_counted_are_refused():
    config = config_keys.complete(ConfigDict(minimal(total_steps=0, epochs=1e9)))
    with pytest.raises(UsageError, match=r"config\.epochs: expected at most 2147483647 updates"):
        config_keys.derive_steps(config, 10**6)


@pytest.mark.parametrize("steps", [{"total_steps": 20}, {"total_steps": 0, "epochs": 1.6}])
def test_a_warm_up_as_long_as_the_schedule_is_refused_by_its_flag(steps):
    config = config_keys.complete(minimal(optimizer={"warmup_steps": 20}) | steps)
    config_keys.derive_steps(config, 100)
    with pytest.raises(UsageError, match=r"than the 20 .*--config\.optimizer\.warmup_steps=2\."):
        config_keys.check_warmup(config)


def test_steps_follow_from_epochs():
    config = config_keys.complete(ConfigDict(minimal(total_steps=0, epochs=2.5)))
    config_keys.derive_steps(config, 100)
    assert config.total_steps == config.optimizer.total_steps == 31


def test_steps():
    jft, imagenet = 303_000_000, 1_281_167
    assert config_keys.steps_of_epochs(7, jft, 4096) == 517_822
    assert config_keys.steps_of_epochs(14, jft, 4096) == 1_035_645
    assert config_keys.steps_of_epochs(300, imagenet, 4096) == 93_835
    assert config_keys.steps_of_epochs(300, imagenet * 99 // 100, 4096) == 92_897
    assert config_keys.steps_of_epochs(1, 10, 4096) == 1


def test_differences_are_what_changes_the_result():
    before = config_keys.complete(ConfigDict(minimal())).to_dict()
    after = config_keys.complete(
        ConfigDict(minimal(seed=1, strategy="mirrored", optimizer={"base_lr": 0.5}))
    ).to_dict()
    assert config_keys.differences(before, after) == [
        "optimizer.base_lr: 0.001 -> 0.5",
        "seed: 0 -> 1",
    ]


def test_a_masked_run_that_named_a_loss_is_the_same_run():
    after = config_keys.complete(ConfigDict(minimal(masked={"target": "mean_color"}))).to_dict()
    assert config_keys.differences(after | {"loss": "own"}, after) == []
    classifier = config_keys.complete(ConfigDict(minimal())).to_dict()
    assert config_keys.differences(classifier | {"loss": "sigmoid"}, classifier)


def test_choices_are_what_is_there():
    choices = {key.name: key.choices for key in config_keys.KEYS}
    assert choices["loss"] == tuple(losses.LOSSES)
    assert choices["optimizer.name"] == tuple(optimizers.OPTIMIZERS)
    assert choices["optimizer.schedule"] == schedules.DECAYS


def test_every_key_is_in_the_table_with_its_default():
    text = config_keys.table().markdown()
    assert len(text.splitlines()) == len(config_keys.KEYS) + 2
    assert "| optimizer.momentum | 0.9 | of SGD; at least 0; below 1 |  |" in text
    rate = "learning rate at the end of the warm-up; at least 0; at most 3.4e+38"
    assert f"| optimizer.base_lr | 0.001 | {rate} |  |" in text
    assert "| batch_size | 0 | images per update, over all devices; at least 1 |  |" in text
