"""The commands and configs in the guides exist, and a table there is what is printed."""

import re

import pytest

import keras_vit
from benchmarks.__main__ import COMMANDS as BENCHMARKS
from keras_vit.training.__main__ import COMMANDS
from keras_vit.training.commands import budget
from keras_vit.training.config import overrides, schema
from tests.other_environments import ROOT

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


def test_hours_are_six_operations_per_multiply_accumulate(capsys):
    table = budget.experiment_table(["ViT-B/16"], teraflops=10)
    cells = {row[0]: row[1:] for row in table.rows}
    macs = keras_vit.costs("ViT-B/16", image_size=384).macs
    exaflops = 6 * macs * 7 * 10_000 * 512 / 1e18
    assert cells["sweep CIFAR-10"] == (7, f"{exaflops:.1f} ({exaflops * 1e18 / 1e13 / 3600:.0f} h)")
    # The paper's second version prints 224.
    assert cells["pre-train on JFT-300M"] == (1, "224 (6,210 h)")
    assert cells["fine-tune on VTAB"][0] == 57
    # Table 3 does not pre-train it.
    assert budget.experiment_table(["ViT-Ti/16"], teraflops=10).rows[0][2] == "–"
    # The document shows what the command prints.
    assert budget.main([]) == 0
    assert capsys.readouterr().out in TEXTS[0]
