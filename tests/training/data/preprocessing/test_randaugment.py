import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from keras_vit.training.data.preprocessing.preprocess import Preprocess
from keras_vit.training.data.preprocessing.randaugment import OPERATIONS, Strengths

PHOTO = np.random.default_rng(0).integers(20, 230, (48, 64, 3)).astype(np.uint8)
PIL = Image.fromarray(PHOTO)


def run(name, magnitude, image=PHOTO, sign=1.0, place=(0.5, 0.5)):
    out = OPERATIONS[name](tf.constant(image), Strengths(magnitude), sign, tf.constant(place))
    assert out.dtype == tf.uint8
    return out.numpy()


def test_sixteen_operations_all_of_which_are_drawn():
    assert len(OPERATIONS) == 16
    # Each operation marks the image it is given; count the marks of many draws.
    process = Preprocess("randaugment(1, 15)")
    expected = {
        name: {run(name, 15, sign=sign).tobytes() for sign in (-1.0, 1.0)}
        for name in OPERATIONS
        if name != "Cutout"
    }
    dataset = tf.data.Dataset.range(400).map(lambda k: process(tf.constant(PHOTO), [9, k]))
    seen = {image.tobytes() for image in dataset.as_numpy_iterator()}
    for name, images in expected.items():
        assert images <= seen, name
    assert seen - set().union(*expected.values()), "Cutout"


@pytest.mark.parametrize(
    ("magnitude", "threshold", "kept"),
    [(10, 0, 4), (15, 128, 6), (20, 0, 8), (5, 128, 2), (9, 230, 3), (0, 0, 1), (25, 128, 1)],
)
def test_solarize_compares_with_a_byte_and_posterize_keeps_high_bits(magnitude, threshold, kept):
    expected = np.where(threshold > PHOTO, PHOTO, 255 - PHOTO)
    np.testing.assert_array_equal(run("Solarize", magnitude), expected)
    mask = (0xFF << (8 - kept)) & 0xFF
    np.testing.assert_array_equal(run("Posterize", magnitude), PHOTO & mask)


def test_contrast_blends_toward_a_constant_of_the_size():
    constant = 48 * 64 // 256
    expected = constant + 1.9 * (PHOTO.astype(np.float32) - constant)
    np.testing.assert_array_equal(run("Contrast", 10), np.clip(expected, 0, 255).astype(np.uint8))
    gray = np.full((224, 224, 3), 100, np.uint8)
    # At 224×224 the constant is 196.
    np.testing.assert_allclose(run("Contrast", 0, gray), int(196 + 0.1 * (100 - 196)), atol=1)


def test_colors_are_pils_up_to_rounding():
    photo = (PHOTO // 2 + 30).astype(np.uint8)
    pil, flat = Image.fromarray(photo), np.full((8, 8, 3), 77, np.uint8)
    ours = run("AutoContrast", 10, photo).astype(int)
    assert np.abs(ours - np.asarray(ImageOps.autocontrast(pil))).max() <= 1
    np.testing.assert_array_equal(run("Equalize", 10, photo), np.asarray(ImageOps.equalize(pil)))
    for name in ("AutoContrast", "Equalize"):
        np.testing.assert_array_equal(run(name, 10, flat), flat)
    for name in ("Brightness", "Color"):
        expected = np.asarray(getattr(ImageEnhance, name)(PIL).enhance(1.9)).astype(int)
        assert np.abs(run(name, 10) - expected).max() <= 2
    added = np.where(PHOTO < 128, np.minimum(PHOTO.astype(int) + 110, 255), PHOTO)
    np.testing.assert_array_equal(run("SolarizeAdd", 10), added)
    np.testing.assert_array_equal(run("Invert", 10), 255 - PHOTO)


def test_sharpness_is_pils_and_keeps_the_border():
    smooth = np.asarray(PIL.filter(ImageFilter.SMOOTH)).astype(np.float32)
    expected = np.clip(smooth + 1.9 * (PHOTO - smooth), 0, 255)
    ours = run("Sharpness", 10)
    assert np.abs(ours[1:-1, 1:-1] - expected[1:-1, 1:-1]).max() <= 2.5
    np.testing.assert_array_equal(ours[0], PHOTO[0])


def test_geometry_moves_pixels_where_it_says_and_fills_with_gray():
    right, up, sheared = run("TranslateX", 1, sign=-1.0), run("TranslateY", 1), run("ShearX", 10)
    np.testing.assert_array_equal(right[:, 10:], PHOTO[:, :-10])
    np.testing.assert_array_equal(up[:-10], PHOTO[10:])
    assert (right[:, :10] == 128).all() and (up[-10:] == 128).all()
    np.testing.assert_array_equal(sheared[0], PHOTO[0])
    np.testing.assert_array_equal(sheared[10, : 64 - 3], PHOTO[10, 3:])
    np.testing.assert_array_equal(run("ShearY", 10)[:, 0], PHOTO[:, 0])
    odd = np.zeros((31, 31, 3), np.uint8)
    odd[15, 15], odd[15, 25] = 250, 200
    turned, back = (run("Rotate", 30, odd, sign)[..., 0] for sign in (1.0, -1.0))  # 90 degrees
    assert (turned[15, 15], turned[5, 15], back[25, 15]) == (250, 200, 200)


def test_cutout_grays_a_square_around_its_center():
    image = np.zeros((100, 100, 3), np.uint8)
    cut, corner = (run("Cutout", 5, image, 1, at)[..., 0] for at in ((0.5, 0.5), (0.0, 0.999)))
    assert (cut == 128).sum() == 40 * 40 and (cut[30:70, 30:70] == 128).all()
    assert (corner == 128).sum() == 20 * 21 and (corner[:20, 79:] == 128).all()


def test_floats_are_rounded_to_bytes_first():
    process, image = Preprocess("randaugment(2, 10)"), tf.constant(PHOTO)
    rounded = process(tf.cast(image, tf.float32) + 0.4, (1, 2))
    np.testing.assert_array_equal(rounded, process(image, (1, 2)))
