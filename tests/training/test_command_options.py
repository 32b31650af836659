"""What the options mean, in their older spellings too."""

import pytest

from training.command_options import CommandParser, complete_config, list_of
from training.commands import data
from training.config_keys import default_config
from training.errors import UsageError


@pytest.fixture
def parser():
    parser = CommandParser("python -m training test")
    parser.add_source()
    return parser


@pytest.mark.parametrize(
    "arguments, source, model",
    [
        (["run"], "run", None),
        (["--image_size=8", "v.npz", "--model=ViT-B/16"], "v.npz", "ViT-B/16"),
        (["--model=run"], "run", None),
        (["--model=ViT-B/16", "--checkpoint=v.npz"], "v.npz", "ViT-B/16"),
        (["--checkpoint", "run"], "run", None),
    ],
)
def test_sources(parser, arguments, source, model):
    options = parser.parse_args(arguments)
    assert (options.source, options.model) == (source, model)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required: SOURCE. See python -m training test --help"),
        (["run", "--image=8"], "unrecognized arguments: --image=8"),
        (["run", "--image_size=big"], "--image_size: invalid int value: 'big'"),
        (["run", "--config.seed=1"], "unrecognized arguments: --config.seed=1"),
        (["run", "--checkpoint=other"], "Expected one SOURCE. Received: run and other"),
    ],
)
def test_wrong_options_are_named(parser, arguments, message):
    with pytest.raises(UsageError, match=message):
        parser.parse_args(arguments)


def test_words_close_to_the_right_ones_are_suggested(capsys):
    assert data.main(["chek", "cifar10"]) == 2
    assert capsys.readouterr().err == (
        "error: argument command: expected one of list, check, prepare, index. Received: chek. "
        "Did you mean check? See python -m training data --help\n"
    )
    assert data.main(["wash"]) == 2
    assert "Received: wash. See python -m training data --help" in capsys.readouterr().err


def test_changes_of_the_config():
    parser = CommandParser("python -m training test")
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
