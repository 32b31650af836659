"""The command counts every image of a split."""

import csv
import json

import keras
import numpy as np
import pytest

from keras_vit.training import data
from keras_vit.training.commands import evaluate as command
from tests.run_config import write_run_config


@pytest.fixture
def run(tmp_path):
    """A run directory of a linear model of the digits, and the model."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
    model.save(tmp_path / "model.keras")
    write_run_config(tmp_path, eval_preprocess="decode|resize(8)|value_range(0,1)")
    return tmp_path, model


def test_files_and_table_agree_with_predictions_by_hand(run, data_dir, tmp_path, capsys):
    path, model = run
    arguments = [str(path), "--dataset=digits", f"--data_dir={data_dir}", "--batch_size=100"]
    assert command.main([*arguments, "--per_class", f"--output={tmp_path / 'out'}"]) == 0
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
