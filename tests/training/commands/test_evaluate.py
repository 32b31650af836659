"""The command counts every image of a split."""

import csv
import json

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import export
from keras_vit.training import data
from keras_vit.training.commands import evaluate as command
from keras_vit.training.commands import few_shot
from tests.run_config import write_run_config
from tests.tiny_vit import tiny_vit


@pytest.fixture
def run(tmp_path):
    """A run directory of a linear model of the digits, and the model."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
    model.save(tmp_path / "model.keras")
    write_run_config(tmp_path, eval_preprocess="decode|resize(8)|value_range(-1,1)")
    return tmp_path, model


def test_a_file_of_probabilities_has_the_models_loss(data_dir, tmp_path, capsys):
    model, losses = tiny_vit(image_size=8, num_classes=10), []
    head = model.get_layer("head").kernel
    head.assign(keras.random.normal(head.shape, seed=1))
    for probabilities in (False, True):
        file = export.to_tflite(model, tmp_path / "m.tflite", probabilities=probabilities)
        options = ["--dataset=digits", f"--data_dir={data_dir}", f"--output={tmp_path}"]
        assert command.main([str(file), *options]) == 0
        losses.append(json.loads((tmp_path / "metrics.json").read_text())["digits"]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0] > 2.4
    assert "m.tflite in litert" in capsys.readouterr().out
    assert command.main([str(file), *options, "--runtime=onnx"]) == 2
    assert "Expected the runtime litert or openvino" in capsys.readouterr().err


def test_the_loss_is_the_models_unless_named(data_dir, tmp_path):
    model, losses = tiny_vit(image_size=8, num_classes=10), []
    options = ["--dataset=digits", f"--data_dir={data_dir}", f"--output={tmp_path}"]
    for activation, named in (("sigmoid", []), (None, ["--loss=sigmoid"]), (None, [])):
        model.activation = activation
        model.save(tmp_path / "m.keras")
        assert command.main([str(tmp_path / "m.keras"), *options, *named]) == 0
        losses.append(json.loads((tmp_path / "metrics.json").read_text())["digits"]["loss"])
    assert losses[0] == losses[1] == pytest.approx(10 * np.log(2)) != losses[2]


def test_files_and_table_agree_with_predictions_by_hand(run, data_dir, tmp_path, capsys):
    path, model = run
    arguments = [str(path), "--dataset=digits", f"--data_dir={data_dir}", "--batch_size=100"]
    assert command.main([*arguments, "--per_class", f"--output={tmp_path / 'out'}"]) == 0
    split = data.open("digits", "test", data_dir)
    preprocess = split.preprocess("decode|resize(8)|value_range(-1,1)")
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


def test_images_get_the_range_of_the_model_all_of_it_on_the_host(run, data_dir, tmp_path, capsys):
    file = export.to_tflite(tiny_vit(image_size=8, num_classes=10), tmp_path / "m.tflite")
    options = ["--dataset=digits", f"--data_dir={data_dir}", f"--output={tmp_path}"]
    for source, wrong in ((file, "-1,1"), (run[0], "0,1")):
        for main in (command.main, few_shot.main):
            preprocess = f"--preprocess=decode|resize(8)|value_range({wrong})"
            assert main([str(source), *options, preprocess]) == 2
            assert f"which maps them to [{wrong.replace(',', ', ')}]" in capsys.readouterr().err
    for source, option in ((file, "--image_size=9"), (run[0], "--model=Ti"), (run[0], "--layer=x")):
        main = few_shot.main if "layer" in option else command.main
        assert main([str(source), *options, option]) == 2
    losses = []
    for text in ("resize(8)", "resize(8)|to_uint8|on_device"):
        assert command.main([str(run[0]), *options, f"--preprocess=decode|{text}|value_range"]) == 0
        losses.append(json.loads((tmp_path / "metrics.json").read_text())["digits"]["loss"])
    assert losses[0] == losses[1]


def test_swapped_arguments_and_other_classes_are_said(run, data_dir, tmp_path, capsys):
    path, _ = run
    for name in ("ant", "bee"):
        (tmp_path / "two" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "two" / name / "1.png")
    data_set = [f"--dataset=folder:{tmp_path / 'two'}", "--split=train"]
    for arguments, message in (
        (["digits", str(path)], f"expected SOURCE and options. Received besides: {path}."),
        (["digits", f"--dataset={path}"], f"{path} is a run, which stands in SOURCE's place."),
        ([str(path), *data_set], "2 classes"),
    ):
        assert command.main(arguments) == 2
        assert message in capsys.readouterr().err


def test_photos_that_cannot_be_read_are_left_out_and_named(run, tmp_path, capsys):
    path, _ = run
    for number in range(10):
        (tmp_path / "photos" / str(number)).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / str(number) / "good.png")
    (tmp_path / "photos" / "3" / "bad.png").write_bytes(b"")
    options = [f"--dataset=folder:{tmp_path / 'photos'}", "--split=train"]
    assert command.main([str(path), *options, f"--output={tmp_path}"]) == 0
    (result,) = json.loads((tmp_path / "metrics.json").read_text()).values()
    assert result["count"] == 10
    assert capsys.readouterr().err.count("Left out: 3/bad.png cannot be read as an image.") == 1
    splits = ["--train_split=train", "--test_split=train"]
    splits += [options[0], "--shots=1", f"--cache_dir={tmp_path / 'cache'}"]
    # A cache that left it out would leave it out for good, and in silence.
    for _ in range(2):
        assert few_shot.main([str(path), *splits]) == 0
        assert "Left out: 3/bad.png" in capsys.readouterr().err


def test_every_record_that_was_prepared_has_to_be_read(data_dir):
    assert data.open("digits", "test", data_dir).left_out is None
