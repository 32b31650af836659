"""The sweep from the command line."""

import importlib
import pathlib

import pytest

from keras_vit.training import data
from keras_vit.training.commands import sweep as command
from keras_vit.training.configs import finetune
from keras_vit.training.data import dataset_table
from keras_vit.training.protocols import learning_rate_sweep
from keras_vit.training.protocols.run_result import RunResult

TINY = pathlib.Path(__file__).parents[1] / "processes" / "tiny.py"


def test_command_takes_rates_from_table_4(monkeypatch, tmp_path, capsys):
    asked = []
    cifar100 = data.Dataset(dataset_table.row("cifar100"), tmp_path)
    monkeypatch.setattr(data, "open_dataset", lambda name, _: {"cifar100": cifar100}[name])

    def train_run(config, workdir, dataset):
        assert dataset is cifar100
        asked.append((workdir.name, config.train_split, config.optimizer.base_lr, config.seed))
        return RunResult(config.optimizer.base_lr, 1.0, 0.1, 100)

    monkeypatch.setattr(learning_rate_sweep, "train_run", train_run)
    arguments = [
        f"--config={finetune.__file__}:ViT-L/16,cifar100",
        f"--workdir={tmp_path}",
        "--seeds=0",
        "--config.batch_size=8",
    ]
    assert command.main(arguments) == 0
    assert asked == [
        *((f"lr_{rate}", "train[:98%]", rate, 0) for rate in (0.001, 0.003, 0.01, 0.03)),
        ("seed_0", "train", 0.03, 0),
    ]
    printed = capsys.readouterr().out
    assert "Table 2, JFT-300M" in printed and "93.90 ± 0.05" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.md", "sweep.csv", "sweep.png"}

    assert command.main([*arguments, "--config.eval_split="]) == 2
    assert "eval_split" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "arguments", "option", "key"),
    [
        ("sweep", [f"--config={TINY}"], "--rates", "optimizer.base_lr"),
        ("sweep", [f"--config={TINY}"], "--seeds", "seed"),
        ("vtab", ["ViT-Ti_16.npz"], "--rates", "optimizer.base_lr"),
        ("ablation", ["head"], "--seeds", "seed"),
    ],
)
def test_what_a_protocol_chooses_has_its_option(name, arguments, option, key, tmp_path, capsys):
    protocol = importlib.import_module(f"keras_vit.training.commands.{name}")
    assert protocol.main([*arguments, f"--workdir={tmp_path}", f"--config.{key}=0.5"]) == 2
    assert f"Expected {option}: this protocol sets config.{key}" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_a_store_that_is_not_installed_is_named(data_dir, capsys):
    arguments = [f"--config={TINY}", "--workdir=s3://bucket/sweep", f"--data_dir={data_dir}"]
    assert command.main([*arguments, "--rates=0.1", "--seeds=0"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: s3://bucket/sweep/test/seed_0/result.json cannot be read: ")
    assert "s3:// with tensorflow-io. Install it, or mount the bucket" in error
