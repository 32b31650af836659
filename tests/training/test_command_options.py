"""What the options mean."""

import pytest

from keras_vit.training.command_options import CommandParser, complete_config, list_of
from keras_vit.training.commands import data
from keras_vit.training.config import default_config
from keras_vit.training.errors import UsageError


@pytest.fixture
def parser():
    parser = CommandParser("keras-vit test")
    parser.add_source()
    return parser


@pytest.mark.parametrize(
    "arguments, source, model",
    [
        (["run"], "run", None),
        (["--image_size=8", "v.npz", "--model=ViT-B/16"], "v.npz", "ViT-B/16"),
    ],
)
def test_sources(parser, arguments, source, model):
    options = parser.parse_args(arguments)
    assert (options.source, options.model) == (source, model)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required: SOURCE. See keras-vit test --help"),
        (["run", "--image=8"], "unrecognized arguments: --image=8"),
        (["run", "--image_size=big"], "--image_size: invalid int value: 'big'"),
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
        "error: argument command: expected one of list, check, prepare, index. Received: chek. "
        "Did you mean check? See keras-vit data --help\n"
    )
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
    changed = complete_config(config, options)
    assert changed.train_preprocess == "decode|value_range(-1, 1)"
    assert (changed.seed, changed.data_dir, changed.eval_batch_size) == (3, "data", 8)
    options = parser.parse_args(["head", "--workdir=run", "--config.sead=3"])
    with pytest.raises(UsageError, match="Did you mean seed"):
        complete_config(config, options)


def test_lists():
    assert list_of(float)("0.1,3") == [0.1, 3.0]
