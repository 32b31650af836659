import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.training.data.preprocessing.preprocess import Preprocess
from tests.odd_photos import oriented

ROWS, COLUMNS = np.mgrid[0:400, 0:600]
# Smooth as a photo is out of focus: waves of 188 pixels and more.
PHOTO = np.stack(
    [127 + 100 * np.sin(ROWS / a) * np.cos(COLUMNS / b) for a, b in ((30, 47), (51, 40), (35, 60))],
    axis=-1,
).astype(np.uint8)
JPEG = tf.io.encode_jpeg(PHOTO, quality=95)


@pytest.fixture
def decoded(monkeypatch):
    """The (ratio, window) of every JPEG that is decoded."""
    found = []

    def note(name, function):
        def noted(image, *window, ratio=1, **options):
            found.append((ratio, *(tuple(each.numpy()) for each in window)))
            return function(image, *window, ratio=ratio, **options)

        monkeypatch.setattr(tf.io, name, noted)

    for name in ("decode_jpeg", "decode_and_crop_jpeg"):
        note(name, getattr(tf.io, name))
    return found


@pytest.mark.parametrize(
    ("size", "text", "least", "expected"),
    [
        ((448, 448), "resize(224)", 1.0, 2),
        ((447, 448), "resize(224)", 1.0, 1),
        ((448, 447), "resize(224)", 1.0, 1),
        ((896, 1000), "resize(224)", 1.0, 4),
        ((896, 1000), "resize(224)", 1.5, 2),
        ((5000, 200), "resize(224)", 1.0, 1),
        ((400, 600), "resize(100)", 1.01, 2),
        ((400, 600), "resize((40, 75))", 1.0, 8),
        ((400, 600), "resize_small(100)|central_crop(90)", 1.0, 4),
        ((400, 600), "resize(100)", 0.0, 1),
        # What is not resized has no size to stay above.
        ((400, 600), "central_crop(20)", 1.0, 1),
    ],
)
def test_the_largest_ratio_that_leaves_enough(size, text, least, expected, decoded):
    image = tf.io.encode_jpeg(np.zeros((*size, 3), np.uint8))
    Preprocess(f"decode|{text}", reduced_decoding=least)(image, (0, 0))
    assert decoded == [(expected,)]


def test_crops_are_decoded_at_that_size(decoded):
    for number in range(20):
        for least in (0, 1):
            crop = Preprocess("decode|inception_crop((40, 50))", reduced_decoding=least)
            crop(JPEG, (0, number))
    for (one, window), (ratio, smaller) in zip(decoded[::2], decoded[1::2], strict=True):
        top, left, height, width = window
        enough = [r for r in (1, 2, 4, 8) if height // r >= 40 and width // r >= 50]
        assert one == 1 and ratio == max(enough, default=1)
        sides = np.floor(np.array([top, left, top + height, left + width]) / ratio + 0.5)
        assert smaller == (*sides[:2], *(sides[2:] - sides[:2]))
    assert {ratio for ratio, _ in decoded[1::2]} >= {2, 4}


def test_other_formats_and_turned_photos_are_decoded_whole():
    whole, reduced = (Preprocess("decode|resize(10)", reduced_decoding=least) for least in (0, 1))
    turned = tf.constant(oriented(6, image=Image.fromarray(PHOTO)))
    for content in (tf.io.encode_png(PHOTO), turned):
        np.testing.assert_array_equal(reduced(content, (0, 0)), whole(content, (0, 0)))
    assert not np.array_equal(reduced(JPEG, (0, 0)), whole(JPEG, (0, 0)))
