import pytest
from ml_collections import ConfigDict

from training import configuration
from training.errors import UsageError


def minimal(**values):
    return {"dataset": "digits", "batch_size": 8, "total_steps": 3, **values}


def test_fills_in_defaults():
    config = configuration.complete(ConfigDict(minimal()))
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
    ],
)
def test_names_what_cannot_work(values, message):
    with pytest.raises(UsageError, match=message):
        configuration.complete(ConfigDict(minimal(**values)))


def test_steps_follow_from_epochs():
    config = configuration.complete(ConfigDict(minimal(total_steps=0, epochs=2.5)))
    configuration.derive_steps(config, 100)
    assert config.total_steps == config.optimizer.total_steps == 31


def test_differences_are_what_changes_the_result():
    before = configuration.complete(ConfigDict(minimal())).to_dict()
    after = configuration.complete(
        ConfigDict(minimal(seed=1, strategy="mirrored", optimizer={"base_lr": 0.5}))
    ).to_dict()
    assert configuration.differences(before, after) == [
        "optimizer.base_lr: 0.001 -> 0.5",
        "seed: 0 -> 1",
    ]


def test_a_run_from_before_a_key_existed_had_its_default():
    after = configuration.complete(ConfigDict(minimal())).to_dict()
    before = {key: value for key, value in after.items() if key not in ("masked", "profile")}
    assert configuration.differences(before, after) == []
