"""Rates are chosen on the development split and scored on the test split, run by run."""

import csv
import json

import keras
import pytest
from ml_collections import ConfigDict

from training.commands import sweep as command
from training.configs import finetune
from training.data import datasets, pipeline
from training.errors import Diverged, TrainingError, UsageError
from training.evaluators import classification
from training.protocols import sweep
from training.protocols.sweep import RunResult


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
    """Stands for the trainer: scores depend on rate, seed and split, and calls are kept."""

    def __init__(self, by_rate):
        self.by_rate = by_rate
        self.calls = []

    def __call__(self, config, workdir):
        rate = config.optimizer.base_lr
        self.calls.append((str(workdir), config.train_split, config.eval_split, config.seed, rate))
        top1 = self.by_rate[rate]
        if top1 is None:
            return RunResult(diverged="The loss became infinite.")
        if config.eval_split == "test":
            top1 += 0.01 * config.seed
        return RunResult(top1=top1, top5=1.0, loss=0.1, count=100)


def test_best_rate_is_trained_on_everything_with_every_seed(config, tmp_path):
    run = Runs({0.001: 0.5, 0.01: 0.8, 0.1: None})
    said = []
    found = sweep.transfer(
        config,
        tmp_path,
        rates=[0.001, 0.01, 0.1],
        seeds=[0, 1, 2],
        development=("sweep", "dev"),
        run=run,
        say=said.append,
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
    assert sweep.mean_and_deviation(found.accuracies) == "81.00 ± 1.00"
    assert config.optimizer.base_lr == 0.5 and config.train_split == "train"
    assert len(said) == 6 and "diverged" in said[2]

    table = sweep.summary(found, [("Table 2, JFT", "99.50 ± 0.06")])
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
    sweep.plot(found, tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert {p.name for p in tmp_path.iterdir()} == {"sweep.png"}


def test_one_rate_needs_no_development(config, tmp_path):
    run = Runs({0.01: 0.7})
    found = sweep.transfer(
        config, tmp_path, rates=[0.01], seeds=[5], development=("a", "b"), run=run, say=str
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


def test_divergence_everywhere_is_an_error(config, tmp_path):
    arguments = {"seeds": [0], "development": ("a", "b"), "say": str}
    with pytest.raises(TrainingError, match=r"Every rate diverged: 1, 2.*--rates"):
        sweep.transfer(
            config, tmp_path, rates=[1.0, 2.0], run=Runs({1.0: None, 2.0: None}), **arguments
        )
    with pytest.raises(TrainingError, match=r"chosen rate 1 diverged with seed 0"):
        sweep.transfer(config, tmp_path, rates=[1.0], run=Runs({1.0: None}), **arguments)


@pytest.mark.parametrize(
    "dataset, split, share, expected",
    [
        ("cifar10", "train", 0.5, ("train[:98%]", "train[98%:]")),
        ("imagenet2012", "train", 0.5, ("train[:99%]", "train[99%:]")),
        ("oxford_iiit_pet", "train", 0.5, ("train[:90%]", "train[90%:]")),
        ("vtab/dtd", "train800val200", 0.5, ("train800", "val200")),
        ("cifar10", "train[:5000]", 0.02, ("train[0:4900]", "train[4900:5000]")),
        ("cifar10", "train[10%:20%]", 0.1, ("train[5000:9500]", "train[9500:10000]")),
        (
            "oxford_flowers102",
            "train+validation",
            0.6,
            ("train[0:816]", "train[816:1020]+validation[0:1020]"),
        ),
    ],
)
def test_development_splits(dataset, split, share, expected):
    spec = datasets.get(dataset)
    first, second = sweep.development_splits(spec, split, share)
    assert (first, second) == expected
    assert spec.num_examples(first) + spec.num_examples(second) == spec.num_examples(split)


def test_too_small_to_split():
    with pytest.raises(ValueError, match="at least 2 images"):
        sweep.development_splits(datasets.get("cifar10"), "train[:1]", 0.1)


def test_tables_are_written_as_markdown_and_csv(config, tmp_path):
    found = sweep.Transfer("cifar10", {}, 0.01, {0: RunResult(0.5, 0.9, 1.0, 10)})
    table = sweep.summary(found)
    assert "| test | mean of 1 | 50.00 |  |" in table.markdown()
    rows = list(csv.reader(table.csv().splitlines()))
    assert rows[1] == ["test", "rate 0.01, seed 0", "50.00", "10"]


@pytest.fixture
def trainer(monkeypatch):
    """Puts a function in the place of `trainer.train`; returns the work directories it got."""
    from training.loop import trainer

    calls = []

    def put(result):
        def train(config, workdir):
            calls.append(workdir)
            (workdir / "checkpoints").mkdir(parents=True)
            if isinstance(result, Exception):
                raise result
            (workdir / "metrics.csv").write_text(
                "step,eval_loss,eval_top1,eval_top5,eval_count\n5,,,,\n"
                f"10,{result[0]},{result[1]},{result[2]},{result[3]}\n"
            )

        monkeypatch.setattr(trainer, "train", train)
        return calls

    return put


def test_a_finished_run_is_not_trained_again(trainer, tmp_path):
    config = finetune.get_config("ViT-Ti/16,digits,size=16,steps=10")
    # 131 of 359, as `metrics.csv` rounds it.
    calls = trainer((0.5, 0.3649025, 0.8495822, 359))
    result = sweep.train_run(config, tmp_path / "run")
    assert result == RunResult(131 / 359, 305 / 359, 0.5, 359)
    assert sweep.train_run(config, tmp_path / "run") == result
    assert calls == [tmp_path / "run"]
    assert not (tmp_path / "run" / "checkpoints").exists()

    config.optimizer.base_lr = 0.5
    with pytest.raises(UsageError, match=r"another config \(optimizer\.base_lr: 0\.01 -> 0\.5\)"):
        sweep.train_run(config, tmp_path / "run")


def test_divergence_is_a_result_and_other_failures_are_not(trainer, tmp_path):
    config = finetune.get_config("ViT-Ti/16,digits,size=16,steps=10")
    calls = trainer(Diverged("The loss became infinite in step 3."))
    result = sweep.train_run(config, tmp_path / "run")
    assert result == RunResult(diverged="The loss became infinite in step 3.")
    assert sweep.train_run(config, tmp_path / "run") == result and len(calls) == 1

    trainer(TrainingError("A worker was lost."))
    with pytest.raises(TrainingError, match="worker"):
        sweep.train_run(config, tmp_path / "other")
    assert not (tmp_path / "other" / "result.json").exists()


def test_further_test_sets_are_scored_with_the_same_weights(monkeypatch, tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(10)]
    )
    run = tmp_path / "test" / "seed_4"
    run.mkdir(parents=True)
    model.save(run / "model.keras")
    config = finetune.get_config("ViT-Ti/16,cifar10,size=8")
    config.data_dir, config.batch_size = str(tmp_path / "tfds"), 100
    monkeypatch.setitem(sweep.ALSO, "cifar10", ("digits",))

    accuracies = sweep.evaluate_also(config, tmp_path, [4])
    batches = pipeline.eval_dataset(
        name="digits",
        split="test",
        preprocess=config.eval_preprocess,
        batch_size=359,
        data_dir=config.data_dir,
    )
    expected = classification.evaluate(model, batches)
    assert accuracies == {"digits": [pytest.approx(100 * expected["top1"])]}
    stored = json.loads((run / "digits.json").read_text())
    assert stored["count"] == 359

    # The second time, what is stored is taken.
    (run / "digits.json").write_text(json.dumps({**stored, "top1": 0.25}))
    assert sweep.evaluate_also(config, tmp_path, [4]) == {"digits": [25.0]}
    rows = sweep.summary(
        sweep.Transfer("cifar10", {}, 0.01, {4: RunResult(0.5, 0.9, 1.0, 10)}),
        also={"digits": [25.0]},
    ).rows
    assert rows[-1] == ("digits", "mean of 1", "25.00", "")


def test_command_takes_rates_from_table_4(monkeypatch, tmp_path, capsys):
    asked = []

    def train_run(config, workdir):
        asked.append((workdir.name, config.train_split, config.optimizer.base_lr, config.seed))
        return RunResult(config.optimizer.base_lr, 1.0, 0.1, 100)

    monkeypatch.setattr(sweep, "train_run", train_run)
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
