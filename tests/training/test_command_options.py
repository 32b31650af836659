"""What the options mean."""

import pytest

from keras_vit.training.command_options import CommandParser
from keras_vit.training.commands import data
from keras_vit.training.config import default_config
from keras_vit.training.config.overrides import config_of
from keras_vit.training.errors import UsageError


@pytest.fixture
def parser():
    parser = CommandParser("keras-vit test")
    parser.add_source()
    return parser


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required: SOURCE. See keras-vit test --help"),
        (["run", "--image=8"], r"^Did you mean --image_size\? Received: --image\."),
        (["--modle=ViT-B/16"], r"^Did you mean --model\? Received: --modle\."),
        (["run", "--image_size=big"], "--image_size: expected an int. Received: big."),
        (["run", "--config.seed=1"], "unrecognized arguments: --config.seed=1"),
        (["--model=ViT-B/16"], "required: SOURCE. See"),
        (["run", "--checkpoint=other"], "unrecognized arguments: --checkpoint=other"),
    ],
)
def test_wrong_options_are_named(parser, arguments, message):
    with pytest.raises(UsageError, match=message):
        parser.parse_args(arguments)


def test_words_close_to_the_right_ones_are_suggested(capsys):
    assert data.main(["chek", "cifar10"]) == 2
    assert capsys.readouterr().err == (
        "error: argument command: Did you mean check? Expected one of list, check, prepare, index. "
        "Received: chek. See keras-vit data --help\n"
    )
    assert data.main(["check", "cifar10", "--data_dri=x"]) == 2
    assert "error: Did you mean --data_dir? Received: --data_dri." in capsys.readouterr().err
    assert data.main(["wash"]) == 2
    assert "Received: wash. See keras-vit data --help" in capsys.readouterr().err


def test_changes_of_the_config():
    parser = CommandParser("keras-vit test")
    parser.add_run(config=False)
    parser.add_argument("study")
    config = default_config()
    config.update({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    changes = ["--config.train_preprocess=decode|value_range(-1, 1)", "--config.seed=3"]
    options = parser.parse_args(["--workdir=run", *changes, "head", "--data_dir=data"])
    assert options.study == "head" and options.overrides == changes
    changed = config_of(options, config)
    assert changed.train_preprocess == "decode|value_range(-1, 1)"
    assert (changed.seed, changed.data_dir, changed.eval_batch_size) == (3, "data", 8)
    options = parser.parse_args(["head", "--workdir=run", "--config.sead=3"])
    with pytest.raises(UsageError, match="Did you mean seed"):
        config_of(options, config)
