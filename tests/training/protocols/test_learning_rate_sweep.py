"""Rates are chosen on the development split and scored on the test split, run by run."""

import json
import pathlib

import keras
import pytest
from etils import epath
from ml_collections import ConfigDict

from keras_vit.training import data
from keras_vit.training.configs import finetune
from keras_vit.training.data import dataset_table
from keras_vit.training.errors import TrainingError, UsageError
from keras_vit.training.evaluators import classification
from keras_vit.training.io.atomic import atomic_file
from keras_vit.training.protocols import learning_rate_sweep as sweep
from keras_vit.training.protocols.run_result import RunResult
from keras_vit.training.protocols.sweep_report import published_results, sweep_table, write_sweep
from tests.training.data.helpers import write_photos

# Passed on to every run.
DATASET = data.Dataset(dataset_table.row("cifar10"), pathlib.Path())


@pytest.fixture
def config():
    return ConfigDict(
        {
            "dataset": "cifar10",
            "seed": 0,
            "train_split": "train",
            "eval_split": "test",
            "early_stopping": {"patience": 0},
            "hand_over": "last",
            "optimizer": {"base_lr": 0.5},
        }
    )


@pytest.fixture
def runs(monkeypatch):
    """Returns a function from the scores of rates to the calls of `train_run` from then on."""

    def put(by_rate):
        calls = []

        def train_run(config, workdir, dataset):
            assert dataset is DATASET
            rate, seed = config.optimizer.base_lr, config.seed
            calls.append((str(workdir), config.train_split, config.eval_split, seed, rate))
            if by_rate[rate] is None:
                return RunResult(diverged="The loss became infinite.")
            top1 = by_rate[rate] + (0.01 * seed if config.eval_split == "test" else 0)
            return RunResult(top1=top1, top5=1.0, loss=0.1, count=100)

        monkeypatch.setattr(sweep, "train_run", train_run)
        return calls

    return put


def test_best_rate_is_trained_on_everything_with_every_seed(config, runs, tmp_path, caplog):
    calls = runs({0.001: 0.5, 0.01: 0.8, 0.1: None})
    caplog.set_level("INFO", logger="keras_vit")
    found = sweep.transfer(
        config,
        tmp_path,
        DATASET,
        rates=[0.001, 0.01, 0.1],
        seeds=[0, 1, 2],
        development=("sweep", "dev"),
    )
    rated, tested = tmp_path / "development", tmp_path / "test"
    assert calls == [
        *((f"{rated}/lr_{rate}", "sweep", "dev", 0, rate) for rate in (0.001, 0.01, 0.1)),
        *((f"{tested}/seed_{seed}", "train", "test", seed, 0.01) for seed in (0, 1, 2)),
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
    assert "| test | mean of 3 | 81.00 ± 1.00 |  |" in (tmp_path / "sweep.md").read_text()
    assert "\ntest,mean of 3,81.00 ± 1.00,\n" in (tmp_path / "sweep.csv").read_text()
    assert (tmp_path / "sweep.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert {p.name for p in tmp_path.iterdir()} == {"sweep.csv", "sweep.md", "sweep.png"}


def test_one_rate_needs_no_development(config, runs, tmp_path):
    calls = runs({0.01: 0.7})
    found = sweep.transfer(
        config, tmp_path, DATASET, rates=[0.01], seeds=[5], development=("a", "b")
    )
    assert [call[1:] for call in calls] == [("train", "test", 5, 0.01)]
    assert found.development == {} and found.accuracies == pytest.approx([75.0])
    config.early_stopping.patience = 5
    with pytest.raises(UsageError, match=r"none is chosen on test\. Received: patience=5"):
        sweep.transfer(config, tmp_path, DATASET, rates=[1], seeds=[5], development=("a", "b"))


def test_the_rate_is_the_best_on_average_and_of_equal_ones_the_smallest():
    scores = {0.03: RunResult(0.9), 0.01: RunResult(0.9), 0.003: RunResult(0.5)}
    assert sweep.choose_rate([scores]) == 0.01
    first = {0.1: RunResult(0.9), 0.2: RunResult(0.5), 0.3: RunResult(0.8)}
    second = {0.1: RunResult(0.1), 0.2: RunResult(0.6), 0.3: RunResult(diverged="NaN")}
    assert sweep.choose_rate([first, second]) == 0.2


def test_divergence_everywhere_is_an_error(config, runs, tmp_path):
    arguments = {"seeds": [0], "development": ("a", "b")}
    runs({1.0: None, 2.0: None})
    with pytest.raises(TrainingError, match=r"Every rate diverged: 1, 2.*--rates"):
        sweep.transfer(config, tmp_path, DATASET, rates=[1.0, 2.0], **arguments)
    with pytest.raises(TrainingError, match=r"chosen rate 1 diverged with seed 0"):
        sweep.transfer(config, tmp_path, DATASET, rates=[1.0], **arguments)


def test_further_test_sets_are_scored_with_the_same_weights(data_dir, tmp_path, ram):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
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


def test_results_of_a_model_on_a_data_set():
    assert published_results("ViT-L/16", "cifar10") == [
        ("Table 2, JFT-300M", "99.42 ± 0.03"),
        ("Table 2, ImageNet-21k", "99.15 ± 0.03"),
        ("Table 5, ImageNet", "97.86"),
        ("Table 5, ImageNet-21k", "99.16"),
        ("Table 5, JFT-300M", "99.38"),
    ]
    assert published_results("R50+ViT-L/16", "oxford_iiit_pet") == [
        ("Table 6, JFT-300M, 7 epochs", "97.03"),
        ("Table 6, JFT-300M, 14 epochs", "97.36"),
    ]
    assert published_results("ViT-Ti/16", "cifar10") == []


def opened(name):
    """Returns a data set of the table as if it were on disk."""
    return data.Dataset(dataset_table.row(name), pathlib.Path())


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
    spec = dataset_table.row(dataset)
    first, second = sweep.development_splits(opened(dataset), split, share)
    assert (first, second) == expected
    assert spec.num_examples(first) + spec.num_examples(second) == spec.num_examples(split)


def test_too_small_to_split():
    with pytest.raises(ValueError, match="at least 2 images"):
        sweep.development_splits(opened("cifar10"), "train[:1]", 0.1)


@pytest.mark.parametrize(
    "split, share, expected",
    [
        ("train", 0.1, ("train[0%:90%]", "train[90%:100%]")),
        ("train[:80%]", 0.25, ("train[0%:60%]", "train[60%:80%]")),
        ("train[50%:]", 0.5, ("train[50%:75%]", "train[75%:100%]")),
        ("train+test", 0.5, ("train[0%:50%]+test[0%:50%]", "train[50%:100%]+test[50%:100%]")),
    ],
)
def test_photos_are_split_class_by_class(tmp_path, split, share, expected):
    names = [
        f"{part}/{kind}/{k}.png" for part in ("train", "test") for kind in "ab" for k in range(40)
    ]
    write_photos(tmp_path, names)
    dataset = data.open_dataset(f"folder:{tmp_path}")
    assert sweep.development_splits(dataset, split, share) == expected
    first, second = (dataset.split(text).photos for text in expected)
    assert sorted(first + second) == sorted(dataset.split(split).photos)
    counts = [
        [photo.label for photo in part].count(label) for part in (first, second) for label in (0, 1)
    ]
    assert min(counts) > 0
