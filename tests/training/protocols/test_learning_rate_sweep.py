"""Rates are chosen on the development split and scored on the test split, run by run."""

import csv
import json
import pathlib

import keras
import pytest
from etils import epath
from ml_collections import ConfigDict

from training import data
from training.configs import finetune
from training.data import registry
from training.errors import TrainingError
from training.evaluators import classification
from training.io.atomic import atomic_file
from training.protocols import learning_rate_sweep as sweep
from training.protocols.run_result import RunResult
from training.protocols.sweep_report import sweep_table, write_sweep

# Passed on to every run.
DATASET = data.Dataset(registry.row("cifar10"), pathlib.Path())


@pytest.fixture
def config():
    return ConfigDict(
        {
            "dataset": "cifar10",
            "seed": 0,
            "train_split": "train",
            "eval_split": "test",
            "optimizer": {"base_lr": 0.5},
        }
    )


class Runs:
    """In the place of `train_run`: scores depend on rate, seed and split, and calls are kept."""

    def __init__(self, by_rate):
        self.by_rate = by_rate
        self.calls = []

    def __call__(self, config, workdir, dataset):
        assert dataset is DATASET
        rate = config.optimizer.base_lr
        self.calls.append((str(workdir), config.train_split, config.eval_split, config.seed, rate))
        top1 = self.by_rate[rate]
        if top1 is None:
            return RunResult(diverged="The loss became infinite.")
        if config.eval_split == "test":
            top1 += 0.01 * config.seed
        return RunResult(top1=top1, top5=1.0, loss=0.1, count=100)


@pytest.fixture
def runs(monkeypatch):
    """Returns a function from the scores of rates to the `Runs` that train from then on."""

    def put(by_rate):
        run = Runs(by_rate)
        monkeypatch.setattr(sweep, "train_run", run)
        return run

    return put


def test_best_rate_is_trained_on_everything_with_every_seed(config, runs, tmp_path, caplog):
    run = runs({0.001: 0.5, 0.01: 0.8, 0.1: None})
    caplog.set_level("INFO", logger="training")
    found = sweep.transfer(
        config,
        tmp_path,
        DATASET,
        rates=[0.001, 0.01, 0.1],
        seeds=[0, 1, 2],
        development=("sweep", "dev"),
    )
    assert run.calls == [
        *(
            (str(tmp_path / "development" / f"lr_{rate}"), "sweep", "dev", 0, rate)
            for rate in (0.001, 0.01, 0.1)
        ),
        *(
            (str(tmp_path / "test" / f"seed_{seed}"), "train", "test", seed, 0.01)
            for seed in (0, 1, 2)
        ),
    ]
    assert found.rate == 0.01 and found.accuracies == pytest.approx([80, 81, 82])
    assert config.optimizer.base_lr == 0.5 and config.train_split == "train"
    assert len(caplog.messages) == 6 and "diverged" in caplog.messages[2]

    table = sweep_table(found, [("Table 2, JFT", "99.50 ± 0.06")])
    assert table.rows == [
        ("development", "rate 0.001", "50.00", 100),
        ("development", "rate 0.01 (chosen)", "80.00", 100),
        ("development", "rate 0.1", "diverged", 0),
        ("test", "rate 0.01, seed 0", "80.00", 100),
        ("test", "rate 0.01, seed 1", "81.00", 100),
        ("test", "rate 0.01, seed 2", "82.00", 100),
        ("test", "mean of 3", "81.00 ± 1.00", ""),
        ("paper", "Table 2, JFT", "99.50 ± 0.06", ""),
    ]
    write_sweep(found, table, tmp_path)
    assert (tmp_path / "sweep.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert {p.name for p in tmp_path.iterdir()} == {"sweep.csv", "sweep.md", "sweep.png"}


def test_one_rate_needs_no_development(config, runs, tmp_path):
    run = runs({0.01: 0.7})
    found = sweep.transfer(
        config, tmp_path, DATASET, rates=[0.01], seeds=[5], development=("a", "b")
    )
    assert [call[1:] for call in run.calls] == [("train", "test", 5, 0.01)]
    assert found.development == {} and found.accuracies == pytest.approx([75.0])


def test_equal_rates_go_to_the_smaller():
    scores = {0.03: RunResult(0.9), 0.01: RunResult(0.9), 0.003: RunResult(0.5)}
    assert sweep.choose_rate([scores]) == 0.01


def test_one_rate_for_several_data_sets_is_the_best_on_average():
    first = {0.1: RunResult(0.9), 0.2: RunResult(0.5), 0.3: RunResult(0.8)}
    second = {0.1: RunResult(0.1), 0.2: RunResult(0.6), 0.3: RunResult(diverged="NaN")}
    assert sweep.choose_rate([first]) == 0.1
    assert sweep.choose_rate([first, second]) == 0.2


def test_divergence_everywhere_is_an_error(config, runs, tmp_path):
    arguments = {"seeds": [0], "development": ("a", "b")}
    runs({1.0: None, 2.0: None})
    with pytest.raises(TrainingError, match=r"Every rate diverged: 1, 2.*--rates"):
        sweep.transfer(config, tmp_path, DATASET, rates=[1.0, 2.0], **arguments)
    with pytest.raises(TrainingError, match=r"chosen rate 1 diverged with seed 0"):
        sweep.transfer(config, tmp_path, DATASET, rates=[1.0], **arguments)


def test_tables_are_written_as_markdown_and_csv(config, tmp_path):
    found = sweep.Transfer("cifar10", {}, 0.01, {0: RunResult(0.5, 0.9, 1.0, 10)})
    table = sweep_table(found)
    assert "| test | mean of 1 | 50.00 |  |" in table.markdown()
    rows = list(csv.reader(table.csv().splitlines()))
    assert rows[1] == ["test", "rate 0.01, seed 0", "50.00", "10"]


def test_further_test_sets_are_scored_with_the_same_weights(data_dir, tmp_path, ram):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(10)]
    )
    run = tmp_path / "test" / "seed_4"
    run.mkdir(parents=True)
    model.save(run / "model.keras")
    config = finetune.get_config("ViT-Ti/16,cifar10,size=8")
    config.batch_size = 100
    digits = data.open_dataset("digits", data_dir)

    accuracies = sweep.score_further_test_sets(config, tmp_path, [digits], [4])
    test = digits.split("test")
    batches = test.evaluate(test.preprocess(config.eval_preprocess), batch_size=359)
    expected = classification.evaluate(model, batches)
    assert accuracies == {"digits": [pytest.approx(100 * expected["top1"])]}
    stored = json.loads((run / "digits.json").read_text())
    assert stored["count"] == 359

    bucket = epath.Path(ram())
    with atomic_file(bucket / "test" / "seed_4" / "model.keras") as file:
        model.save(file)
    assert sweep.score_further_test_sets(config, bucket, [digits], [4]) == accuracies
    assert (bucket / "test" / "seed_4" / "digits.json").exists()

    # The second time, what is stored is taken.
    (run / "digits.json").write_text(json.dumps({**stored, "top1": 0.25}))
    assert sweep.score_further_test_sets(config, tmp_path, [digits], [4]) == {"digits": [25.0]}
    rows = sweep_table(
        sweep.Transfer("cifar10", {}, 0.01, {4: RunResult(0.5, 0.9, 1.0, 10)}),
        further={"digits": [25.0]},
    ).rows
    assert rows[-1] == ("digits", "mean of 1", "25.00", "")
