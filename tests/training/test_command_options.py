"""What the options mean."""

import pytest

from keras_vit.training.command_options import CommandParser
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
