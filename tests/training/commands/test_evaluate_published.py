"""A published checkpoint's accuracy beside its published one, on data sets as ImageNet's are."""

import dataclasses

import numpy as np
import pytest
import tensorflow_datasets as tfds

import keras_vit
from keras_vit.training.commands import evaluate as command
from keras_vit.training.data import dataset_table

NAME = (
    "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res"
    "_224"
)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The folder of downloads of AugReg, with the index of published accuracies."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    folder = tmp_path / "keras_vit" / "augreg"
    folder.mkdir(parents=True)
    (folder / "index.csv").write_text(
        "ds,filename,final_test,adapt_ds,adapt_filename,adapt_final_test\n"
        f"i21k,{NAME.partition('--')[0]},0.1,imagenet2012,{NAME},0.75\n"
    )
    return folder


@pytest.fixture
def imagenet(published, shallow, tmp_path, monkeypatch):
    """ImageNet and its ReaL labels of 20 images, and a checkpoint that says class 7 of each.

    16 of 20 have that label on ImageNet; of ReaL's 16 images with labels, 12 have it among them.
    """
    model = keras_vit.create_model("ViT-Ti/16", num_classes=1000, image_size=224)
    model.get_layer("head").bias.assign(np.arange(1000) == 7)
    keras_vit.save_checkpoint(model, published / f"{NAME}.npz")

    labels = [7 if number < 16 else 8 for number in range(20)]
    several = [[] if number < 4 else [label, 9] for number, label in enumerate(labels)]
    label = tfds.features.ClassLabel(num_classes=1000)
    image = tfds.features.Image(shape=(4, 4, 3))
    real = {"original_label": label, "real_label": tfds.features.Sequence(label)}
    for name, version, features, columns in (
        ("imagenet2012", "5.1.0", {"label": label}, [labels]),
        ("imagenet2012_real", "1.0.0", real, [labels, several]),
    ):
        features = {"image": image, **features}
        rows = zip(np.zeros((20, 4, 4, 3), np.uint8), *columns, strict=True)
        examples = (dict(zip(features, row, strict=True)) for row in rows)
        splits = {"validation": enumerate(examples)}
        features = tfds.features.FeaturesDict(features)
        tfds.dataset_builders.store_as_tfds_dataset(
            name, version, features, splits, data_dir=tmp_path
        )
        row = dataclasses.replace(dataset_table.DATASETS[name], sizes={"validation": 20})
        monkeypatch.setitem(dataset_table.DATASETS, name, row)
    return tmp_path


def cells_of(text, name):
    (line,) = (line for line in text.splitlines() if line.startswith(f"│ {name} "))
    _, images, top1, _, _, *published = [cell.strip() for cell in line.strip("│").split("│")]
    return [images, top1, *published]


def test_measured_published_and_difference(imagenet, capsys):
    arguments = ["imagenet2012", f"--weights=augreg/{NAME}", f"--data_dir={imagenet}"]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert f"Accuracy of augreg/{NAME} at 224 pixels" in printed
    assert cells_of(printed, "imagenet2012") == ["20", "80.00", "75.00", "+5.00"]
    assert cells_of(printed, "imagenet2012_real") == ["16", "75.00", "–", "–"]
    assert f"Published: {imagenet / 'keras_vit' / 'augreg' / 'index.csv'}." in printed
    assert "keras-vit data prepare imagenet_v2" in printed
    assert "Images: decode|resize([224,224])|value_range(-1,1)" in printed


def test_bad_use(published, tmp_path, capsys):
    (published / f"{NAME}.npz").touch()
    weights = f"--weights=augreg/{NAME}"
    for arguments, message in (
        (["imagenet2012", "--weights=augreg/B_15"], "Expected the name of a published checkpoint"),
        (["imagenet2012", weights, "--index=other.csv"], "index other.csv cannot be read"),
        (["imagenet2012", "--index=other.csv"], "Expected --weights=NAME"),
        (["cifar10", weights, f"--data_dir={tmp_path}"], "data prepare cifar10"),
    ):
        assert command.main(arguments) == 2
        assert message in capsys.readouterr().err
