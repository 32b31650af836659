import os

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export.errors import ExportError
from keras_vit.export.run_export import load_images
from keras_vit.training.inference.interface import Interface
from keras_vit.training.io.image_listing import spread
from tests.training.data.helpers import write_photos
from tests.training.runs import write_run_config


def test_photos_that_trained_the_model_are_said(tmp_path, caplog):
    folder, run = tmp_path / "photos", tmp_path / "run"
    write_photos(folder, [f"{bird}/{n}.png" for bird in ("crow", "owl") for n in range(5)])
    run.mkdir()
    (run / "metrics.csv").touch()
    halves = {"train_split": "train[:60%]", "eval_split": "train[60%:]"}
    write_run_config(run, dataset=f"folder:{folder}", data_dir="", **halves)
    source, interface = f"folder:{folder}", Interface((16, 16), class_names=["crow", "owl"])
    load_images(source, interface, split="train[60%:]", scored=run)
    assert "which is scored" not in caplog.text
    load_images(source, interface, split="train", scored=run)
    assert "of the 10 images of train, which is scored, are in train[:60%] too" in caplog.text
    caplog.clear()
    load_images(folder, interface, scored=run)  # a directory of files
    assert "of the 10 images of files, which is scored, are in train[:60%] too" in caplog.text


def test_directories_of_images(tmp_path, caplog):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 24, 20, 3)).astype("uint8")
    for index, image in enumerate(pixels):
        (tmp_path / f"{index}.png").write_bytes(tf.io.encode_png(image).numpy())
    (tmp_path / "notes.txt").write_text("not an image")
    images, labels = load_images(tmp_path, Interface((16, 16)), limit=2)
    expected = tf.image.resize(pixels / np.float32(255), (16, 16))
    np.testing.assert_allclose(images, expected[:2], atol=1e-6)
    assert spread([*range(9)], 4) == [0, 2, 4, 6] and spread([1, 2], 5) == [1, 2]
    assert labels is None
    known, folder = ["bird", "owl", "wren"], tmp_path / "photos"
    for number, name in enumerate(known):
        (folder / name).mkdir(parents=True)
        os.link(tmp_path / f"{number}.png", folder / name / "whole.png")
    (folder / "bird/nothing.png").write_bytes(b"")
    source = f"folder:{folder}"  # Its only split.
    for names in (known, ["wren", "bird", "owl"]):
        images, labels = load_images(source, Interface((16, 16), class_names=names))
        shown = [known.index(names[place]) for place in labels.argmax(1)]
        np.testing.assert_allclose(images, expected.numpy()[shown], atol=1e-6)
    others = Interface((16, 16), class_names=["owl", "crow", "wren"])
    assert load_images(source, others)[1] is None
    assert "Left out: bird/nothing.png cannot be read" in caplog.text
    assert "It lacks crow and has also bird." in caplog.text
    for name in known:
        (folder / name / "whole.png").unlink()
    with pytest.raises(ExportError, match="Received: none that can be read"):
        load_images(source, others)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"Expected images \(.*\) in .*empty. Received: none"):
        load_images(tmp_path / "empty", others)
