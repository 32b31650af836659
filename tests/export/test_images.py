import os

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export.errors import ExportError
from keras_vit.export.images import load_images
from keras_vit.training.inference.interface import Interface
from keras_vit.training.io.image_listing import spread


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
