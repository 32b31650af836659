import contextlib
import math

import numpy as np
import pytest
from ml_collections import ConfigDict, FrozenConfigDict, config_dict

from keras_vit import learning_rate_schedule, losses, optimizers
from keras_vit.training.config import schema
from keras_vit.training.config.overrides import load_config, override
from keras_vit.training.configs import parse_argument, parse_options
from keras_vit.training.errors import UsageError
from keras_vit.training.recipes.model import build_model

# Of other numbers the least is 0.
LEAST_ONE = "accumulation_steps batch_size few_shot.shots keep_checkpoints log_every_steps"
LEAST_ONE += " peer_timeout processes.count steps_per_call"
LEAST = {"mesh.data": -1, "mesh.fsdp": -1} | dict.fromkeys(LEAST_ONE.split(), 1)


def minimal(**values):
    return {"dataset": "digits", "batch_size": 8, "total_steps": 3, **values}


def sharded(**processes):
    return {"strategy": "sharded", "processes": processes}


@pytest.mark.rows(
    ({"bach_size": 4}, "Did you mean batch_size"),
    ({"strategy": "mirored"}, r"^Did you mean mirrored\? config.strategy: expected one of"),
    ({"batch_size": 6, "accumulation_steps": 4}, "multiple of config.accumulation_steps"),
    ({"total_steps": 0}, "total_steps or config.epochs"),
    ({"seed": "zero"}, "seed: expected a whole number, at least 0 and at most 2147483647. Rec"),
    ({"freeze": {"until_step": 5}}, "to say what is frozen. Received: freeze.until_step=5, "),
    ({"freeze": {"blocks": 1}, "lora": {"rank": 4}}, "no config.freeze.* beside it"),
    ({"lora": {"alpha": 4.0}}, "expected config.lora.rank beside it"),
    ({"optimizer": {"momentum": 0.5}}, "expected config.optimizer.name=sgd beside it"),
    ({"optimizer": {"name": "sgd", "beta_1": 0.5, "beta_2": 0.5}}, r"^config\.optimizer\.beta_1: "),
    ({"lora": {"rank": 4}}, "config.checkpoint: expected the weights"),
    ({"masked": {"target": "pixels"}, "label_smoothing": 0.1}, "no lora.rank, label_smo"),
    ({"masked": {"target": "pixels"}, "loss": "sigmoid"}, "class_weights, loss or freeze"),
    ({"masked": {"target": "pixels"}, "eval_split": "test"}, "eval_split: expected ''"),
    ({"hand_over": "best"}, "config.eval_split beside it"),
    ({"optimizer": {"base_lr": 0.0}}, "base_lr: expected a rate above 0: no weight would"),
    ({"model": {"trainable": False}}, r"model\.trainable: expected config\.freeze\.\* in its pl"),
    ({"model": {"dtype": "float16"}}, r"model\.dtype: expected config\.precision in its place"),
    ({"model": {"weights": "augreg/B_16"}}, r"weights: expected config\.checkpoint in its place"),
    ({"model": {"image_size": np.int64(8)}}, "model.image_size: expected a value of JSON. Obj"),
    ({"early_stopping": {"patience": 3}, "eval_split": "test"}, "config.eval_every_steps"),
    ({"early_stopping": {"metric": "loss"}}, "eval_top1, eval_top5,"),
    (sharded(count=2, index=1), r"r: expected .host:port. .*r='', .*count=2, .*\.index=1"),
    (sharded(coordinator="somewhere"), "coordinator: expected .host:port. of process 0"),
    (sharded(coordinator="h:1", count=2, index=2), "index: expected less .*index=2, .*count=2"),
    ({"processes": {"count": 2}}, r"config\.processes: expected config\.strategy=.sharded"),
    ({"processes": {"coordinator": "auto"}}, "coordinator='auto', strategy='one'"),
    ({"tpu": "local"}, r"config\.tpu: expected config.strategy=tpu beside it"),
    ({"mesh": {"fsdp": -1}}, "config.mesh: expected .*fsdp=-1, strategy='one'"),
    ({"steps_per_call": {".": 0}}, r"config\.steps_per_call: expected .* Received: "),
    *(
        (schema.nested({key: value}), rf"config\.{key}: expected .* Received: ")
        for key, value in (
            ("optimizer.momentum", 2.0),
            ("ema_decay", 1.0),
            ("optimizer.layer_decay", 1.1),
            ("masked.corruption_rate", 1.5),
            ("seed", 2**40),
            ("epochs", 10**400),
            ("few_shot.shots", (1, True)),
            ("few_shot.shots", (1, 2.5)),
            ("few_shot.shots", ()),
        )
    ),
)
def test_names_what_cannot_work(values, message):
    with pytest.raises(UsageError, match=message):
        schema.complete(minimal(**values))


def test_every_number_has_bounds_and_none_may_be_none():
    for key in schema.KEYS:
        if not isinstance(key.default, (bool, str)):
            least = LEAST.get(key.name, 0)
            kind = (lambda value: (value,)) if key.name == "few_shot.shots" else type(key.default)
            assert key.accepts(kind(least)) and not key.accepts(kind(least - 1)), key.name
            assert f", at least {least}" in key.expected
        if type(key.default) in (int, float):
            # Infinite is off.
            assert key.accepts(math.inf) == (key.name in ("checkpoint_every_minutes", "loss_limit"))
            assert not key.accepts(math.nan) and not key.accepts(True)
        with pytest.raises(UsageError, match=rf"config\.{key.name}: expected"):
            schema.complete(minimal(**schema.nested({key.name: None})))


def test_the_steps_of_a_run_and_its_warm_up():
    short = ({"epochs": 1, "batch_size": 4096}, 10, 1)
    given = [({"total_steps": 7}, 100, 7), ({"epochs": 1.6}, 100, 20), short]
    for changes, examples, steps in given:
        config = schema.complete(minimal(total_steps=0) | changes)
        schema.derive_steps(config, examples)
        assert config.total_steps == config.optimizer.total_steps == steps
        changes |= {"optimizer": {"warmup_steps": steps}}
        with pytest.raises(UsageError, match=rf"than the {steps} .*warmup_steps={steps // 10}\."):
            schema.derive_steps(schema.complete(minimal(total_steps=0) | changes), examples)
    for until in (19, 20, 21):
        config = schema.complete(minimal(total_steps=20, freeze={"blocks": 1, "until_step": until}))
        expected = rf"expected below 20, the last\. Received: {until}"
        refused = pytest.raises(UsageError, match=expected)
        with refused if until > 19 else contextlib.nullcontext():
            schema.derive_steps(config, 100)
    config = schema.complete(minimal(total_steps=0, epochs=1e9))
    with pytest.raises(UsageError, match=r"config\.epochs: expected at most 2147483647 updates"):
        schema.derive_steps(config, 10**6)


def test_every_key_that_means_nothing_without_another_says_so():
    for beside, keys in schema._BESIDE.items():
        for name in keys.split():
            key = schema._BY_NAME[name]
            values = (*key.choices, "x", 0.5, 0.25, 3, (3,), True)
            value = next(each for each in values if each != key.default and key.accepts(each))
            other = {"optimizer": {"name": "sgd"}} if beside.endswith("adamw") else {}
            if beside == "distill.loss=kl|soft":
                other = {"distill": {"teacher": "RUN", "loss": "l2"}}
            if beside == "loss=softmax":
                other = {"loss": "sigmoid", "eval_split": "test"}
            values = schema.flatten(other) | {name: value}
            expected = rf"config\.{name}: expected config\.{beside.replace('|', ' or ')} beside it"
            with pytest.raises(UsageError, match=expected):
                schema.complete(schema.nested(minimal() | values))


def test_differences_choices_and_stores():
    values = {"seed": 1, "strategy": "mirrored", "optimizer": {"base_lr": 0.0005}}
    before, after = (schema.complete(minimal(**each)).to_dict() for each in ({}, values))
    differences = ["optimizer.base_lr: 0.001 -> 0.0005", "seed: 0 -> 1"]
    assert schema.differences(before, after) == differences
    choices = {key.name: key.choices for key in schema.KEYS}
    assert choices["loss"] == tuple(losses.LOSSES)
    assert choices["optimizer.name"] == tuple(optimizers.OPTIMIZERS)
    assert choices["optimizer.schedule"] == learning_rate_schedule.DECAYS
    assert schema.complete(minimal(data_dir="gs://b/tfds")).data_dir == "gs://b/tfds"
    with pytest.raises(UsageError, match="memory://run"):
        schema.complete(minimal(data_dir="memory://run"))


def test_configs_are_found_from_any_folder_and_their_failures_are_one_line(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert load_config("quickstart").dataset == "digits"
    assert load_config("finetune:ViT-B/16,vtab/dtd,steps=100").dataset == "vtab/dtd"
    own = "from ml_collections import *\ndef get_config(): return ConfigDict({'dataset': 1})"
    (tmp_path / "quickstart").write_text(own)
    assert load_config("quickstart").dataset == 1
    file = tmp_path / "mine.py"
    file.write_text("def get_config():\n    rate = 1\n    return rate / 0\n")
    with pytest.raises(UsageError, match=r"mine.py cannot be read: .* \(ZeroDivisionError\)$"):
        load_config(str(file))
    assert "return rate / 0" in capsys.readouterr().err
    for content, message in (
        ("def get_config(:", r"\(SyntaxError\)$"),
        ("x = 1", "defines no function get_config"),
        ("def get_config():\n    return {}", "expected an ml_collections.ConfigDict"),
        ("def get_config(arg):\n    return arg", ":ARGUMENT, as its first lines explain"),
    ):
        file.write_text(content)
        with pytest.raises(UsageError, match=message):
            load_config(str(file))


def test_options_after_the_colon_follow_the_rules_of_keys():
    defaults = {"size": 0, "table2": False, "crop": ""}
    found = parse_argument("m, d,size=1e3,table2, crop=none", "f", defaults)
    assert found == ("m", "d", {"size": 1000, "table2": True, "crop": "none"})
    for text in ("True", "true", "1"):
        assert parse_options([f"table2={text}"], "f", defaults)["table2"] is True
    for part, message in (
        ("size", "^size of f: expected a whole number, such as 32. Received: nothing"),
        ("crop", "^crop of f: expected text"),
        ("sise=1", "KEY=VALUE of f with"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_options([part], "f", defaults)


@pytest.mark.rows(
    ("model.remat", True),
    ("model.remat=false", False),
    ("model.dropout_rate=0.1", 0.1),
    ("model.gelu=exact", "exact"),
    ("model.representation_size=None", None),
    ('model.resnet={"num_layers": (1, 1)}', {"num_layers": (1, 1)}),
    ("few_shot.shots=(1, 1e2)", (1, 100)),
    ("seed=-1e2", -100),
    ("epochs=0.5", 0.5),
)
@pytest.mark.parametrize("kind", [ConfigDict, FrozenConfigDict, lambda d: ConfigDict(d).lock()])
def test_a_config_of_some_keys_takes_any(argument, value, kind):
    before = {"dataset": "mine", "epochs": 2}
    config, name = kind(before), argument.partition("=")[0]
    found = schema.flatten(override(config, [f"--config.{argument}"]).to_dict())
    assert found == before | {name: value} and type(found[name]) is type(value)
    assert config.to_dict() == before


def test_what_cannot_be_set_is_refused():
    for argument, message in (
        ("report=", "expected true or false, such as True. Received: nothing"),
        ("dataset", "expected text, such as ''. Received: nothing"),
        ("seed=1.23e1", "expected a whole number, such as 32. Received: 1.23e1"),
        ("batch_size=a", "expected a whole number, such as 32. Received: a"),
        ("few_shot.shots=1,2.5", "expected whole numbers, .* Received: 1,2.5"),
        ("base_lr=1", "Did you mean optimizer.base_lr"),
        ("optimzer.base_lr=1", "Did you mean optimizer.base_lr"),
        ("model.resnet.width_factor=1", "Unknown config key model.resnet.width_factor"),
    ):
        with pytest.raises(UsageError, match=message):
            override(load_config("quickstart"), [f"--config.{argument}"])


def test_a_length_that_is_given_replaces_the_other_and_the_model_checks_its_arguments():
    for argument in ("remat=perhaps", "num_heads=few", "num_layers=1.5", "remt=1"):
        config = override(load_config("quickstart"), [f"--config.model.{argument}"])
        with pytest.raises((UsageError, ValueError), match=argument.partition("=")[0]):
            build_model(config, 10)
    resnet = '--config.model.resnet={"num_layers": (1, 1), "width_factor": 1}'
    own = ["--config.model.image_size=32", "--config.model.patch_size=1", resnet]
    made = build_model(schema.complete(override(load_config("quickstart"), own)), 10)
    assert made.arguments["resnet"] == {"num_layers": (1, 1), "width_factor": 1}
    recipe = ConfigDict({"total_steps": 1000})
    found = override(recipe, ["--config.epochs=3"])
    assert (found.epochs, found.total_steps) == (3.0, 0)
    found = override(ConfigDict({"epochs": 300.0}), ["--config.total_steps=7"])
    assert (found.epochs, found.total_steps) == (0.0, 7)
    assert override(recipe, ["--config.epochs=0"]).total_steps == 1000
    twice = ["--config.total_steps=7", "--config.epochs=3", "--config.total_steps=0"]
    assert override(recipe, twice).epochs == 3
    with pytest.raises(UsageError, match=r"Expected config.epochs or config.total_steps"):
        override(recipe, twice[:2])
    with pytest.raises(UsageError, match="required_placeholder"):
        override(ConfigDict({"seed": config_dict.required_placeholder(int)}), [])
