"""The command counts every image of a split."""

import csv
import json

import keras
import numpy as np
import pytest

from tests.run_config import write_run_config
from training import data
from training.commands import evaluate as command


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("tfds")


@pytest.fixture
def run(tmp_path):
    """A run directory of a linear model of the digits, and the model."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(10)]
    )
    model.save(tmp_path / "model.keras")
    write_run_config(tmp_path, eval_preprocess="decode|resize(8)|value_range(0,1)")
    return tmp_path, model


def test_files_and_table_agree_with_predictions_by_hand(run, data_dir, tmp_path, capsys):
    path, model = run
    status = command.main(
        [
            f"--model={path}",
            "--dataset=digits",
            f"--data_dir={data_dir}",
            "--batch_size=100",
            "--per_class",
            f"--output={tmp_path / 'out'}",
        ]
    )
    assert status == 0
    split = data.open("digits", "test", data_dir)
    preprocess = split.preprocess("decode|resize(8)|value_range(0,1)")
    (batch,) = split.evaluate(preprocess, batch_size=359)
    labels = batch["label"].numpy().argmax(1)
    predicted = model.predict_on_batch(batch["image"]).argmax(1)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())["digits"]
    assert metrics["count"] == 359 and metrics["top1"] == np.mean(predicted == labels)

    with (tmp_path / "out" / "digits" / "confusion.csv").open() as file:
        rows = list(csv.reader(file))
    counts = np.array([row[1:] for row in rows[1:]], int)
    expected = np.zeros((10, 10), int)
    np.add.at(expected, (labels, predicted), 1)
    np.testing.assert_array_equal(counts, expected)
    printed = capsys.readouterr().out
    assert f"{100 * metrics['top1']:.2f}" in printed and "mostly mistaken for" in printed


def test_a_model_of_other_classes_is_refused(run, data_dir, tmp_path, capsys):
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    model.save(tmp_path / "m.keras")
    arguments = [f"--model={tmp_path / 'm.keras'}", "--dataset=digits", f"--data_dir={data_dir}"]
    assert command.main(arguments) == 2
    assert "number of classes" in capsys.readouterr().err


def test_missing_data_ends_at_once_with_the_way_to_get_it(run, tmp_path, capsys):
    path, _ = run
    arguments = [f"--model={path}", "--dataset=cifar10", f"--data_dir={tmp_path / 'empty'}"]
    assert command.main(arguments) == 2
    assert "python -m training data prepare cifar10" in capsys.readouterr().err
