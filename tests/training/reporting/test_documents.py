"""The commands in the guides exist, and the configs that they name can be read."""

import pathlib
import re

import pytest

from benchmarks.__main__ import COMMANDS as BENCHMARKS
from keras_vit.training.__main__ import COMMANDS
from keras_vit.training.config import overrides, schema

ROOT = pathlib.Path(__file__).parents[3]
TEXTS = [(ROOT / "docs" / name).read_text() for name in ("reproduce.md", "transfer.md")]


def found(pattern):
    return sorted({match for text in TEXTS for match in re.findall(pattern, text, re.MULTILINE)})


@pytest.mark.parametrize("words", found(r"(?:python -m |`|^)(benchmarks|keras-vit) (\w+)"))
def test_commands_exist(words):
    program, name = words
    assert name in (BENCHMARKS if program == "benchmarks" else (*COMMANDS, "export"))


@pytest.mark.parametrize("config", found(r"--config=([^\s`]+)[\s`]"))
def test_configs_are_complete(config):
    path, _, argument = config.partition(":")
    # A run directory of the reader's stands for the name of a model.
    argument = re.sub(r"^(RUN|runs/[\w-]+)", "ViT-B/16", argument)
    text = f"{path}:{argument}" if argument else path
    loaded = schema.complete(overrides.load_config(text))
    assert loaded.dataset and (loaded.total_steps > 0 or loaded.epochs > 0)
