"""Which file `--config` reads, and what `--config.KEY=VALUE` makes of it."""

import pytest
from ml_collections import ConfigDict, FrozenConfigDict, config_dict

from keras_vit.training.config import schema
from keras_vit.training.config.overrides import load_config, override
from keras_vit.training.configs import parse_argument, parse_options
from keras_vit.training.errors import UsageError

OWN_FILE = """
from ml_collections import ConfigDict

def get_config():
    return ConfigDict({"dataset": "mine"})
"""


@pytest.mark.parametrize(
    "text, dataset",
    [
        ("quickstart", "digits"),
        ("training/configs/quickstart.py", "digits"),
        ("finetune:ViT-B/16,cifar10", "cifar10"),
        ("ablation:position/2d_every", "cifar10"),
        ("training/configs/finetune.py:ViT-B/16,vtab/dtd,steps=100", "vtab/dtd"),
    ],
)
def test_configs_of_the_package_are_found_from_any_folder(text, dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config(text).dataset == dataset


@pytest.mark.parametrize("path", ["quickstart", "training/configs/quickstart.py"])
def test_a_file_of_the_user_comes_first(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(OWN_FILE)
    assert load_config(path).dataset == "mine"


BROKEN_FILE = """
def get_config():
    rate = 1
    return rate / 0
"""


def test_a_file_that_fails_shows_its_own_frames_then_one_line(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(BROKEN_FILE)
    with pytest.raises(UsageError, match=r"mine.py cannot be read: .* \(ZeroDivisionError\)$"):
        load_config(str(file))
    error = capsys.readouterr().err
    assert "return rate / 0" in error and error.count('File "') == 1
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


def test_what_tensorflow_says_when_a_config_imports_it_is_kept_back(tmp_path, capfd):
    lines = ["I0000 00:00:1 port.cc:153] oneDNN custom operations are on.", "of the user"]
    text = "\n".join(f"import os; os.write(2, b'{line}\\n')" for line in lines)
    (tmp_path / "mine.py").write_text(text + OWN_FILE)
    assert load_config(str(tmp_path / "mine.py")).dataset == "mine"
    assert capfd.readouterr().err == "of the user\n"


@pytest.mark.parametrize("path", ["quickstrat", "other/quickstart.py", "quickstart.py", "../x"])
def test_configs_that_are_not_there(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = f"one of .*, masked, own_photos, pretrain, quickstart. Received: {path}, no such file"
    with pytest.raises(UsageError, match=message):
        load_config(path)


@pytest.mark.parametrize(
    "argument, value",
    [
        ("remat", True),
        ("dropout_rate=0.1", 0.1),
        ("head_bias_init=-7", -7.0),
        ("gelu=exact", "exact"),
        ("num_classes=1e2", 100),
        ("representation_size=None", None),
        ("dtype=mixed_bfloat16", "mixed_bfloat16"),
        ('resnet={"num_layers": (1, 1)}', {"num_layers": (1, 1)}),
    ],
)
def test_any_argument_of_the_model(argument, value):
    model = override(load_config("quickstart"), [f"--config.model.{argument}"]).model.to_dict()
    found = model[argument.partition("=")[0]]
    assert found == value and type(found) is type(value)
    assert set(model) - {argument.partition("=")[0]} <= set(load_config("quickstart").model)


@pytest.mark.parametrize(
    "model, name, value",
    [
        ("ViT-B/16", "remat", True),
        ("R50+ViT-B/16", "gelu", "exact"),
        ("BiT-R50x1", "width_factor", 0.5),
    ],
)
def test_any_argument_of_a_model_by_name(model, name, value):
    config = load_config(f"finetune:{model},cifar10")
    assert name not in config.model
    changed = override(config, [f"--config.model.{name}={value}"])
    assert changed.model[name] == value and type(changed.model[name]) is type(value)


@pytest.mark.parametrize(
    "config, argument, message",
    [
        ("quickstart", "model.remt=True", r"^Did you mean model\.remat\? .* key model\.remt\."),
        ("finetune:BiT-R50x1,cifar10", "model.remat=1", "Known keys: model.dtype, model.head_bi"),
        ("quickstart", "model.remat=perhaps", "true or false, such as False. Received: perhaps"),
        ("quickstart", "model.num_heads=few", "expected a whole number, such as 4. Received: few"),
        ("quickstart", "cache=", "expected true or false, such as True. Received: nothing"),
        ("quickstart", "model.representation_size=True", "a whole number, .* Received: True"),
        ("quickstart", "model.resnet=x", "model.resnet: expected a dict, such as {}"),
        ("finetune:BiT-R50x1,cifar10", "model.num_layers=True", r"whole numbers, .*\(3, 4, 6, 3\)"),
        ("quickstart", "dataset", "expected text, such as 'digits'. Received: nothing"),
        ("quickstart", "seed=1.23e1", "expected a whole number, such as 0. Received: 1.23e1"),
        ("quickstart", "few_shot.shots=1,2.5", "expected whole numbers, .* Received: 1,2.5"),
        ("quickstart", "base_lr=1", "Did you mean optimizer.base_lr"),
        ("Quickstrat", "seed=1", r"^Did you mean quickstart\? .* Quickstrat, no such file"),
        ("quickstart", "optimzer.base_lr=1", "Did you mean optimizer.base_lr"),
        ("quickstart", "optimizer.x=1", "Known keys: optimizer.base_lr, optimizer.beta_1, [^s]*o"),
        ("quickstart", "optimizer=sgd", "^config.optimizer is a section: .*, optimizer.base_lr, "),
        ("quickstart", "model.resnet.depth=2", r"Unknown config key model\.resnet\.depth"),
    ],
)
def test_what_cannot_be_set_is_refused(config, argument, message):
    with pytest.raises(UsageError, match=message):
        override(load_config(config), [f"--config.{argument}"])


@pytest.mark.parametrize(
    "text, message",
    [
        ("finetune:cifar10", "^Expected finetune:MODEL,DATASET"),
        ("pretrain", "^Expected --config=pretrain:ARGUMENT, .* Received: pretrain.$"),
        ("quickstart:foo", "^Expected --config=quickstart, .* Received: quickstart:foo.$"),
        ("cifar10_small:abc", "^--config=cifar10_small:abc: invalid literal"),
        ("ablation:head/abc", "^--config=ablation:head/abc: Expected a cell"),
        ("finetune:ViT-B/16,cifar10,size=abc", "^size of finetune: expected a whole number"),
    ],
)
def test_a_wrong_use_of_the_package_s_configs_is_one_line(text, message, capsys):
    with pytest.raises(UsageError, match=message) as caught:
        load_config(text)
    assert "\n" not in str(caught.value) and not capsys.readouterr().err


@pytest.mark.parametrize(
    "argument, value",
    [
        ("few_shot.shots=(1, 1e2)", (1, 100)),
        ("seed=-1e2", -100),
        ("epochs=0.5", 0.5),
        ("model.hidden_size=8", 8),
    ],
)
@pytest.mark.parametrize("kind", [ConfigDict, FrozenConfigDict, lambda d: ConfigDict(d).lock()])
def test_a_config_of_some_keys_takes_any(argument, value, kind):
    config = kind({"dataset": "mine", "epochs": 2})
    name = argument.partition("=")[0]
    found = schema.flatten(override(config, [f"--config.{argument}"]))
    assert found == {"dataset": "mine", "epochs": 2, name: value}
    assert type(found[name]) is type(value)
    assert config.to_dict() == {"dataset": "mine", "epochs": 2}


@pytest.mark.parametrize(
    "model", [{"name": "", "resnet": {"num_layers": (1, 1)}}, {"name": "R50+ViT-B/16"}]
)
def test_an_argument_within_an_argument_of_the_model(model):
    changed = override(ConfigDict({"model": model}), ["--config.model.resnet.num_layers=(2,2)"])
    assert changed.model.resnet.num_layers == (2, 2)


def test_a_length_that_is_given_replaces_the_other():
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


def test_an_open_placeholder_is_one_line():
    with pytest.raises(UsageError, match="required_placeholder"):
        override(ConfigDict({"seed": config_dict.required_placeholder(int)}), [])
