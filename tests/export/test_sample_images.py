"""Images to verify and calibrate with come from files and data sets."""

import numpy as np
import pytest
import tensorflow as tf

from export.sample_images import load_images


def test_directories_of_images(tmp_path):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (3, 24, 20, 3)).astype("uint8")
    for index, image in enumerate(pixels):
        (tmp_path / f"{index}.png").write_bytes(tf.io.encode_png(image).numpy())
    (tmp_path / "notes.txt").write_text("not an image")
    images, labels = load_images(tmp_path, (16, 16), limit=2)
    expected = tf.image.resize(pixels[:2] / np.float32(255), (16, 16))
    np.testing.assert_allclose(images, expected, atol=1e-6)
    assert labels is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"Expected images \(.*\) in .*empty. Received: none"):
        load_images(tmp_path / "empty", (16, 16))
