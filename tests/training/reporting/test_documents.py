"""The commands in the guides exist, and the configs that they name can be read."""

import importlib.util
import pathlib
import re

import pytest

from training import config_command_line, config_keys

ROOT = pathlib.Path(config_command_line.__file__).parents[1]
TEXTS = [(ROOT / "docs" / name).read_text() for name in ("reproduce.md", "transfer.md")]


def found(pattern):
    return sorted({match for text in TEXTS for match in re.findall(pattern, text)})


@pytest.mark.parametrize("module", found(r"python -m (training[.\w]*|benchmarks \w+)"))
def test_commands_exist(module):
    assert importlib.util.find_spec(module.replace(" ", "."))


@pytest.mark.parametrize("config", found(r"--config=(\S+?\.py(?::[^\s`]+)?)[\s`]"))
def test_configs_are_complete(config):
    path, _, argument = config.partition(":")
    # A run directory of the reader's stands for the name of a model.
    argument = re.sub(r"^(RUN|runs/[\w-]+)", "ViT-B/16", argument)
    text = f"{ROOT / path}:{argument}" if argument else str(ROOT / path)
    loaded = config_keys.complete(config_command_line.load_config(text))
    assert loaded.dataset and (loaded.total_steps > 0 or loaded.epochs > 0)


@pytest.mark.parametrize("link", found(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)"))
def test_links_lead_somewhere(link):
    assert (ROOT / "docs" / link).exists()
