"""A published checkpoint's accuracy beside its published one, on data sets as ImageNet's are."""

import dataclasses

import keras
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
IMAGES, CLASSES = 20, 1000


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
    """ImageNet and its ReaL labels of 20 images, and a checkpoint that is right on some.

    16 of 20 on ImageNet's labels; of ReaL's 16 images with labels, 12.
    """
    keras.utils.set_random_seed(0)
    model = keras_vit.create_model("ViT-Ti/16", num_classes=CLASSES, image_size=224)
    kernel = model.get_layer("head").kernel
    kernel.assign(keras.random.normal(kernel.shape, seed=1))
    keras_vit.save_checkpoint(model, published / f"{NAME}.npz")

    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (IMAGES, 14, 14, 3), np.uint8)
    images = coarse.repeat(16, axis=1).repeat(16, axis=2)
    logits = np.array(model(images / np.float32(127.5) - 1))
    best = np.sort(logits, axis=1)[:, -2:]
    assert (best[:, 1] - best[:, 0]).min() > 1e-3
    predicted = logits.argmax(1)
    labels = [int(c) if i < 16 else int(c + 1) % CLASSES for i, c in enumerate(predicted)]
    several = [[] if i < 4 else [label, 7] for i, label in enumerate(labels)]

    label = tfds.features.ClassLabel(num_classes=CLASSES)
    image = tfds.features.Image(shape=(224, 224, 3), encoding_format="png")
    real = {"original_label": label, "real_label": tfds.features.Sequence(label)}
    for name, version, features, columns in (
        ("imagenet2012", "5.1.0", {"label": label}, [labels]),
        ("imagenet2012_real", "1.0.0", real, [labels, several]),
    ):
        features = {"image": image, **features}
        rows = zip(images, *columns, strict=True)
        examples = (dict(zip(features, row, strict=True)) for row in rows)
        tfds.dataset_builders.store_as_tfds_dataset(
            name,
            version,
            tfds.features.FeaturesDict(features),
            {"validation": enumerate(examples)},
            data_dir=tmp_path,
        )
        row = dataset_table.DATASETS[name]
        small = dataclasses.replace(row, sizes={"validation": IMAGES})
        monkeypatch.setitem(dataset_table.DATASETS, name, small)
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
