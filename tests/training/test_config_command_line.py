"""Which file `--config` reads, and what `--config.KEY=VALUE` makes of it."""

import pytest

from training.config_command_line import load_config, override
from training.errors import UsageError

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
        ("ablation_position:2d_every", "cifar10"),
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


def test_what_tensorflow_says_when_a_config_imports_it_is_kept_back(tmp_path, capfd):
    lines = ["I0000 00:00:1 port.cc:153] oneDNN custom operations are on.", "of the user"]
    text = "\n".join(f"import os; os.write(2, b'{line}\\n')" for line in lines)
    (tmp_path / "mine.py").write_text(text + OWN_FILE)
    assert load_config(str(tmp_path / "mine.py")).dataset == "mine"
    assert capfd.readouterr().err == "of the user\n"


@pytest.mark.parametrize("path", ["quickstrat", "other/quickstart.py", "quickstart.py", "../x"])
def test_configs_that_are_not_there(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = (
        f"The config {path} cannot be read: .* one of .*, finetune, masked, own_photos, pretrain, "
        "quickstart"
    )
    with pytest.raises(UsageError, match=message):
        load_config(path)


@pytest.mark.parametrize(
    "argument, value",
    [
        ("remat=True", True),
        ("remat", True),
        ("dropout_rate=0.1", 0.1),
        ("head_bias_init=-7", -7.0),
        ("representation_size=48", 48),
        ("gelu=exact", "exact"),
        ("num_classes=1e2", 100),
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
        ("quickstart", "model.remt=True", r"key model\.remt\. Did you mean model\.remat\?"),
        ("finetune:BiT-R50x1,cifar10", "model.remat=1", "Known keys: dtype, head_bi"),
        ("quickstart", "model.remat=perhaps", "expected a bool such as False. Received: perhaps"),
        ("quickstart", "model.num_heads=few", "expected a int such as 4. Received: few"),
        ("quickstart", "jit_compile=2", "expected a bool such as False. Received: 2"),
        ("quickstart", "model.resnet.depth=2", r"Unknown config key model\.resnet\.depth"),
    ],
)
def test_what_cannot_be_set_is_refused(config, argument, message):
    with pytest.raises(UsageError, match=message):
        override(load_config(config), [f"--config.{argument}"])
