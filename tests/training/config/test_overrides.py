"""Which file `--config` reads, and what `--config.KEY=VALUE` makes of it."""

import pytest
from ml_collections import ConfigDict, FrozenConfigDict, config_dict

from keras_vit.training.config import schema
from keras_vit.training.config.overrides import load_config, override
from keras_vit.training.configs import parse_argument, parse_options
from keras_vit.training.errors import UsageError
from keras_vit.training.recipes.model_freezing_and_layer_decay import build_model


def test_configs_are_found_from_any_folder_after_a_file_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config("quickstart").dataset == "digits"
    assert load_config("finetune:ViT-B/16,vtab/dtd,steps=100").dataset == "vtab/dtd"
    own = "from ml_collections import *\ndef get_config(): return ConfigDict({'dataset': 1})"
    (tmp_path / "quickstart").write_text(own)
    assert load_config("quickstart").dataset == 1


def test_a_file_that_fails_shows_its_own_frames_then_one_line(tmp_path, capsys):
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
        ("size", "^size of f: expected a whole number, such as 0. Received: nothing"),
        ("crop", "^crop of f: expected text"),
        ("sise=1", "KEY=VALUE of f with"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_options([part], "f", defaults)


@pytest.mark.parametrize(
    "argument, value",
    [
        ("model.remat", True),
        ("model.remat=false", False),
        ("model.dropout_rate=0.1", 0.1),
        ("model.gelu=exact", "exact"),
        ("model.representation_size=None", None),
        ('model.resnet={"num_layers": (1, 1)}', {"num_layers": (1, 1)}),
        ("few_shot.shots=(1, 1e2)", (1, 100)),
        ("seed=-1e2", -100),
        ("epochs=0.5", 0.5),
    ],
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
        ("cache=", "expected true or false, such as False. Received: nothing"),
        ("dataset", "expected text, such as ''. Received: nothing"),
        ("seed=1.23e1", "expected a whole number, such as 0. Received: 1.23e1"),
        ("few_shot.shots=1,2.5", "expected whole numbers, .* Received: 1,2.5"),
        ("base_lr=1", "Did you mean optimizer.base_lr"),
        ("optimzer.base_lr=1", "Did you mean optimizer.base_lr"),
    ):
        with pytest.raises(UsageError, match=message):
            override(load_config("quickstart"), [f"--config.{argument}"])


def test_a_length_that_is_given_replaces_the_other_and_the_model_checks_its_arguments():
    for argument in ("remat=perhaps", "num_heads=few", "num_layers=1.5", "remt=1"):
        config = override(load_config("quickstart"), [f"--config.model.{argument}"])
        with pytest.raises((UsageError, ValueError), match=argument.partition("=")[0]):
            build_model(config, 10)
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
