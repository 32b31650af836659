import dataclasses
import json
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

import keras_vit
from benchmarks.errors_in_runtimes import with_noise
from keras_vit import export
from keras_vit.__main__ import main
from keras_vit.training import data
from keras_vit.training.data.sets import known_datasets
from keras_vit.training.data.tf_data_batches import eval_dataset
from tests.tiny_vit import tiny_vit
from tests.training.data.helpers import write_photos
from tests.training.runs import write_run_config

PREPROCESS = "decode|resize(8)|value_range(-1,1)"
UPSTREAM = "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
NAME = f"{UPSTREAM}--imagenet2012-steps_20k-lr_0.03-res_224"


@pytest.fixture
def run(tmp_path):
    with_noise(tiny_vit(image_size=8, num_layers=1, num_classes=10)).save(tmp_path / "model.keras")
    write_run_config(tmp_path, eval_preprocess=PREPROCESS)
    return tmp_path


def metrics(folder, *arguments):
    assert main(["evaluate", *map(str, arguments), f"--output={folder}"]) == 0
    (found,) = json.loads((folder / "metrics.json").read_text()).values()
    return found


@pytest.mark.long
def test_the_loss_is_the_models_unless_named(data_dir, tmp_path, capsys, refused):
    model, losses = tiny_vit(image_size=8, num_classes=10, num_layers=1), {}
    head = model.get_layer("head").kernel
    head.assign(keras.random.normal(head.shape, seed=1))
    options = ["--dataset=digits", "--split=test[:50]", f"--data_dir={data_dir}"]

    def loss(file, *named):
        return metrics(tmp_path, file, *options, *named)["loss"]

    for activation in ("softmax", "sigmoid"):
        model.activation = activation
        model.save(tmp_path / f"{activation}.keras")
        losses[activation] = loss(tmp_path / f"{activation}.keras")
    assert loss(tmp_path / "softmax.keras", "--loss=sigmoid") == losses["sigmoid"]
    model.activation = "softmax"
    for settings in ({}, {"probabilities": True}, {"probabilities": True, "activation": "sigmoid"}):
        file = export.to_tflite(model, tmp_path / "m.tflite", **settings)
        activation = settings.get("activation", "softmax")
        assert loss(file) == pytest.approx(losses[activation], rel=1e-5)
    assert losses["softmax"] > 2.4 and losses["sigmoid"] > losses["softmax"] + 1
    assert "m.tflite in litert" in capsys.readouterr().out
    for runtime, message in (("onnx", "litert or openvino"), ("litert", "for runtime='litert'")):
        source = file if runtime == "onnx" else tmp_path / "softmax.keras"
        assert message in refused("evaluate", source, *options, f"--runtime={runtime}")


def test_files_and_table_agree_with_predictions_by_hand(run, data_dir, tmp_path, capsys):
    options = ["--dataset=digits", f"--data_dir={data_dir}", "--batch_size=100", "--per_class"]
    found = metrics(tmp_path, run, *options)
    split = data.open("digits", "test", data_dir)
    (batch,) = eval_dataset(split, split.preprocess(PREPROCESS), batch_size=359)
    labels = batch["label"].numpy().argmax(1)
    model = keras.saving.load_model(run / "model.keras")
    predicted = model.predict_on_batch(batch["image"]).argmax(1)
    assert found["count"] == 359 and found["top1"] == np.mean(predicted == labels)

    counts = np.loadtxt(tmp_path / "digits" / "confusion.csv", int, delimiter=",", skiprows=1)
    expected = np.zeros((10, 10), int)
    np.add.at(expected, (labels, predicted), 1)
    np.testing.assert_array_equal(counts[:, 1:], expected)
    printed = capsys.readouterr().out
    assert f"{100 * found['top1']:.2f}" in printed and "mostly mistaken for" in printed


def test_images_get_the_range_of_the_model_all_of_it_on_the_host(run, data_dir, tmp_path, refused):
    file = export.to_tflite(tiny_vit(image_size=8, num_classes=10), tmp_path / "m.tflite")
    options = ["--dataset=digits", f"--data_dir={data_dir}"]
    for source, wrong in ((file, "-1, 1"), (run, "0, 1")):
        preprocess = f"--preprocess=decode|resize(8)|value_range({wrong})"
        for command in ("evaluate", "few_shot"):
            error = refused(command, source, *options, preprocess)
            assert f"which maps them to [{wrong}]" in error
    for source, option in ((file, "--image_size=9"), (run, "--model=Ti"), (run, "--layer=x")):
        refused("few_shot" if "layer" in option else "evaluate", source, *options, option)
    texts = (f"decode|resize(8){text}|value_range" for text in ("", "|to_uint8|on_device"))
    words = ([run, *options, f"--preprocess={text}"] for text in texts)
    on_host, on_device = (metrics(tmp_path, *each) for each in words)
    assert on_host["loss"] == on_device["loss"]


def test_classes_are_matched_by_name_and_mistakes_are_said(run, data_dir, tmp_path, refused):
    write_photos(tmp_path / "two", ["ant/1.png", "bee/2.png", "bee/3.png"])
    model = tiny_vit(image_size=8, num_layers=1, num_classes=2)
    model.get_layer("head").bias.assign([0, 1])
    shutil.copytree(tmp_path / "two", f"{tmp_path}_two")
    data_set = [f"--dataset=folder:{tmp_path / 'two'}", "--split=train"]
    for names, top1 in ((("ant", "bee"), 2 / 3), (("bee", "ant"), 1 / 3), (None, 2 / 3)):
        model.class_names = names
        model.save(tmp_path / "two.keras")
        assert metrics(tmp_path, tmp_path / "two.keras", *data_set)["top1"] == pytest.approx(top1)
    bare = tiny_vit(image_size=8, num_classes=None, hidden_size=2, num_heads=1)
    bare.save(tmp_path / "bare.keras")
    model.class_names = ("ant", "cow")
    model.save(tmp_path / "two.keras")
    for arguments, message in (
        ([f"{tmp_path}/two.keras", *data_set], "model's 2 classes. It lacks cow and has also bee."),
        ([f"{tmp_path}/bare.keras", *data_set], "Expected a model with a head."),
        (["digits", str(run)], f"unrecognized arguments: {run}."),
        (["digits", f"--dataset={run}"], f"{run} is a run, which stands in SOURCE's place."),
        ([str(run), *data_set], "2 classes"),
        (["runs/some"], "or --dataset=NAME. Received: runs/some, which does not exist."),
        ([str(run), f"{data_set[0]},folder:{tmp_path}_two", data_set[1]], "differ by more than"),
    ):
        assert message in refused("evaluate", *arguments)


def test_photos_that_cannot_be_read_are_left_out_and_named(run, data_dir, tmp_path, capsys):
    assert data.open("digits", "test", data_dir).left_out is None  # every record has to be read
    write_photos(tmp_path / "photos", [f"{number}/good.png" for number in range(10)])
    (tmp_path / "photos" / "3" / "bad.png").write_bytes(b"")
    dataset = f"--dataset=folder:{tmp_path / 'photos'}"
    assert metrics(tmp_path, run, dataset, "--split=train")["count"] == 10
    assert capsys.readouterr().err.count("Left out: 3/bad.png cannot be read as an image.") == 1
    options = ["--train_split=train", "--test_split=train", "--shots=1"]
    options += [dataset, f"--cache_dir={tmp_path / 'cache'}"]
    for _ in range(2):  # A cache that left it out would leave it out for good, and in silence.
        assert main(["few_shot", str(run), *options]) == 0
        assert "Left out: 3/bad.png" in capsys.readouterr().err


@pytest.fixture
def published(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    folder = tmp_path / "keras_vit" / "augreg"
    folder.mkdir(parents=True)
    columns = "ds,filename,final_test,adapt_ds,adapt_filename,adapt_final_test"
    row = f"i21k,{UPSTREAM},0.1,imagenet2012,{NAME},0.75"
    (folder / "index.csv").write_text(f"{columns}\n{row}\n")
    return folder


def test_measured_published_and_difference(published, shallow, tmp_path, monkeypatch, capsys):
    # ImageNet and its ReaL labels of 20 images, and a checkpoint that says class 7 of each: 16 of
    # 20 have that label on ImageNet; of ReaL's 16 images with labels, 12 have it among them.
    model = keras_vit.create_model("ViT-Ti/16", num_classes=1000, image_size=224)
    model.get_layer("head").bias.assign(np.arange(1000) == 7)
    keras_vit.save_checkpoint(model, published / f"{NAME}.npz")

    labels = [7] * 16 + [8] * 4
    several = [[]] * 4 + [[label, 9] for label in labels[4:]]
    label = tfds.features.ClassLabel(num_classes=1000)
    image = tfds.features.Image(shape=(4, 4, 3))
    real = {"original_label": label, "real_label": tfds.features.Sequence(label)}
    for name, version, features, columns in (
        ("imagenet2012", "5.1.0", {"label": label}, [labels]),
        ("imagenet2012_real", "1.0.0", real, [labels, several]),
    ):
        features = tfds.features.FeaturesDict({"image": image, **features})
        rows = zip(np.zeros((20, 4, 4, 3), np.uint8), *columns, strict=True)
        examples = (dict(zip(features, row, strict=True)) for row in rows)
        splits, store = {"validation": enumerate(examples)}, tfds.dataset_builders
        store.store_as_tfds_dataset(name, version, features, splits, data_dir=tmp_path)
        row = dataclasses.replace(known_datasets.DATASETS[name], sizes={"validation": 20})
        monkeypatch.setitem(known_datasets.DATASETS, name, row)

    arguments = ["imagenet2012", f"--weights=augreg/{NAME}", f"--data_dir={tmp_path}"]
    assert main(["evaluate", *arguments, f"--output={tmp_path / 'out'}"]) == 0
    printed, said = capsys.readouterr()
    assert "16 of the 16 images of imagenet2012_real have several labels" in said
    assert f"Evaluation of augreg/{NAME} at 224 pixels" in printed
    table = re.sub(" +", " ", printed)
    assert re.search(r"│ imagenet2012 test │ 20 │ 80\.00 │ \S+ │ \S+ │ 75\.00 │ \+5\.00 │\n", table)
    assert re.search(r"│ imagenet2012_real test │ 16 │ 75\.00 │ \S+ │ \S+ │ – │ – │\n", table)
    assert f"Published: {published / 'index.csv'}." in printed
    assert "keras-vit data prepare imagenet_v2" in printed
    assert "Images: decode|resize([224,224])|value_range(-1,1)" in printed


def test_what_is_no_published_checkpoint(published, tmp_path, refused):
    (published / f"{NAME}.npz").touch()
    weights = f"--weights=augreg/{NAME}"
    for arguments, message in (
        (["imagenet2012", "--weights=augreg/B_15"], "Expected the name of a published checkpoint"),
        (["imagenet2012", weights, "--index=other.csv"], "index other.csv cannot be read"),
        (["imagenet2012", "--index=other.csv"], "Expected --weights=NAME"),
        (["cifar10", weights, f"--data_dir={tmp_path}"], "data prepare cifar10"),
    ):
        assert message in refused("evaluate", *arguments)
