import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from training.data.preprocessing.operations import resizing

from training.data.preprocessing.preprocess import Preprocess

RNG = np.random.default_rng(0)
NOISE = RNG.integers(0, 256, (90, 130, 3)).astype(np.uint8)
# A smooth image, for which chroma upsampling at a crop's border hardly matters.
SMOOTH = np.stack(
    np.broadcast_arrays(
        np.linspace(0, 255, 120)[:, None], np.linspace(255, 0, 200)[None], np.float64(90)
    ),
    axis=2,
).astype(np.uint8)


def jpeg(image, mode="RGB", **options):
    buffer = io.BytesIO()
    Image.fromarray(image).convert(mode).save(buffer, "JPEG", quality=92, **options)
    return buffer.getvalue()


def run(text, encoded, seed=(0, 0)):
    return Preprocess(text)(tf.constant(encoded), seed).numpy()


def test_precise_decoding_is_pils_bit_for_bit():
    encoded = jpeg(NOISE)
    expected = np.asarray(Image.open(io.BytesIO(encoded)))
    np.testing.assert_array_equal(run("decode(precise=True)", encoded), expected)
    fast = run("decode", encoded)
    assert 0 < np.abs(fast.astype(int) - expected).mean() < 3


def test_grayscale_png_and_arrays_become_rgb():
    gray = NOISE[..., 0]
    encoded = tf.io.encode_png(gray[..., None])
    np.testing.assert_array_equal(run("decode", encoded), np.stack([gray] * 3, axis=2))
    assert run("decode", jpeg(gray, "L")).shape == (90, 130, 3)
    assert run("decode(channels=1)", jpeg(NOISE)).shape == (90, 130, 1)
    np.testing.assert_array_equal(Preprocess("decode")(tf.constant(NOISE), (0, 0)), NOISE)


def test_cmyk_becomes_rgb_also_when_cropped():
    encoded = jpeg(SMOOTH, "CMYK")
    whole = run("decode", encoded)
    # Converting to CMYK and back loses little without a color profile.
    assert np.abs(whole.astype(int) - SMOOTH).mean() < 8
    assert run("decode|inception_crop(32)", encoded).shape == (32, 32, 3)


@pytest.mark.parametrize("crop", ["inception_crop(64)", "random_resized_crop(64)"])
def test_fused_decode_and_crop_is_decode_then_crop(crop):
    encoded = jpeg(SMOOTH)
    decoded = run("decode", encoded)
    for number in range(12):
        fused = run(f"decode|{crop}", encoded, (0, number))
        plain = Preprocess(f"pad(0)|{crop}")(tf.constant(decoded), (0, number)).numpy()
        assert np.abs(fused - plain).max() < 6
        assert np.abs(fused - plain).mean() < 0.2


@pytest.mark.parametrize(
    "crop", ["inception_crop(96)", "inception_crop(20)", "random_resized_crop(64)"]
)
@pytest.mark.parametrize("arguments", ["-1, 1", "0, 1", "1, -1", "0, 1, 10, 200"])
@pytest.mark.parametrize("encode", [jpeg, tf.io.encode_png])
def test_a_fused_range_is_the_range_of_what_was_resized(crop, arguments, encode):
    encoded = encode(NOISE)
    for number in range(4):
        fused = run(f"decode|{crop}|flip_lr|value_range({arguments})", encoded, (0, number))
        resized = run(f"decode|{crop}|flip_lr", encoded, (0, number))
        expected = run(f"value_range({arguments})", resized)
        np.testing.assert_allclose(fused, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [20, 96])
def test_a_flip_before_the_resize_is_the_flip_after_it(size):
    text = f"random_resized_crop({size})|flip_lr(1.0)|value_range"
    for number in range(4):
        # The operation in front keeps the numbers of the others and prevents the fusion.
        apart = run(f"pad(0)|{text}", NOISE, (0, number))
        fused = run(f"decode|{text}", NOISE, (0, number))
        np.testing.assert_allclose(fused, apart, rtol=0, atol=5e-5)


def test_a_range_is_fused_with_a_crop_that_keeps_its_size():
    encoded, text = jpeg(NOISE), "decode|inception_crop(96, resize=False)"
    expected = run("value_range", run(text, encoded))
    np.testing.assert_allclose(run(f"{text}|value_range", encoded), expected, rtol=0, atol=1e-6)


def test_inception_crops_area_aspect_and_height():
    """Area is 5 to 100 %, aspect 0.75 to 1.33, and small crops are favored (24 % on average)."""
    height, width = 256, 512
    rows, columns = np.mgrid[:height, :width]
    image = tf.constant(np.stack([rows, columns, 0 * rows], 2), tf.int32)
    process = Preprocess("inception_crop(8, resize=False)")
    crops = tf.data.Dataset.range(400).map(lambda k: tf.shape(process(image, tf.stack([5, k]))))
    shapes = np.asarray(list(crops.as_numpy_iterator()))
    area = shapes[:, 0] * shapes[:, 1] / (height * width)
    aspect = shapes[:, 1] / shapes[:, 0]
    assert area.min() > 0.045
    assert area.max() <= 1
    assert aspect.min() > 0.73
    assert aspect.max() < 1.36
    assert abs(area.mean() - 0.24) < 0.03


def test_random_resized_crops_area_is_uniform():
    image = tf.zeros((400, 400, 1))
    process = Preprocess("random_resized_crop(400, scale=(0.25, 0.5), ratio=(1.0, 1.0))")

    def area(number):
        # The crop of a ramp, resized: its slope tells the side of the crop.
        ramp = tf.broadcast_to(tf.range(400, dtype=tf.float32)[:, None, None], image.shape)
        column = process(ramp, tf.stack([1, number]))[:, 0, 0]
        return tf.square((column[300] - column[100]) / 200)

    found = np.asarray(list(tf.data.Dataset.range(300).map(area).as_numpy_iterator()))
    assert found.min() > 0.24
    assert found.max() < 0.51
    assert abs(found.mean() - 0.375) < 0.015


def test_random_resized_crop_falls_back_to_the_largest_central_crop():
    image = tf.constant(np.arange(1000, dtype=np.float32).reshape(1, 1000, 1))
    found = Preprocess("random_resized_crop((1, 1))")(image, (0, 0)).numpy()
    # Of 1×1000 pixels, the widest crop with an aspect up to 4/3 is 1×1, in the middle.
    assert found.item() == 499


def test_resize_samples_half_pixel_centers_without_antialiasing():
    ramp = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    np.testing.assert_allclose(run("resize((1, 4))", ramp).ravel(), [0.5, 2.5, 4.5, 6.5], atol=1e-6)
    np.testing.assert_allclose(
        run("resize((1, 2))", ramp).ravel(), [1.5, 5.5], atol=1e-6
    )  # with antialiasing these would be blends of four pixels


def test_resize_small_keeps_the_aspect():
    image = np.zeros((375, 500, 3), np.uint8)
    assert run("resize_small(256)", image).shape == (256, 341, 3)
    assert run("resize_small(256)|central_crop(224)", image).shape == (224, 224, 3)


def test_resize_small_averages_areas():
    image = np.arange(64, dtype=np.float32).reshape(8, 8, 1)
    expected = image.reshape(4, 2, 4, 2, 1).mean(axis=(1, 3))
    np.testing.assert_allclose(run("resize_small(4)", image), expected, atol=1e-5)


def test_crops_take_the_pixels_they_name():
    np.testing.assert_array_equal(run("central_crop((80, 100))", NOISE), NOISE[5:85, 15:115])
    rows, columns = np.mgrid[:20, :30]
    image = np.stack([rows, columns], 2)
    corners = {tuple(run("random_crop(18)", image, (0, k))[0, 0]) for k in range(400)}
    assert corners == {(row, column) for row in range(3) for column in range(13)}


@pytest.mark.parametrize("crop", ["random_crop", "central_crop"])
def test_crops_of_images_too_small_are_explained(crop):
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least that large"):
        run(f"{crop}(200)", NOISE)
    inside = tf.function(lambda image: Preprocess(f"{crop}(200)")(image, (0, 0)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least that large"):
        inside.get_concrete_function(tf.TensorSpec((None, None, 3), tf.uint8))(tf.constant(NOISE))


def test_random_shift_moves_each_way_and_fills_with_black():
    image = np.zeros((9, 9, 1), np.uint8)
    image[4, 4] = 255
    places = set()
    for number in range(150):
        shifted = run("random_shift(2)", image, (0, number))
        assert shifted.sum() == 255
        places.add(tuple(np.argwhere(shifted)[0][:2]))
    assert places == {(row, column) for row in range(2, 7) for column in range(2, 7)}


def test_flip_mirrors_columns_at_its_probability():
    np.testing.assert_array_equal(run("flip_lr(1.0)", NOISE), NOISE[:, ::-1])
    np.testing.assert_array_equal(run("flip_lr(0.0)", NOISE), NOISE)


def test_value_range_maps_ends_to_ends():
    levels = np.asarray([0, 127.5, 255], np.float32).reshape(1, 3, 1)
    np.testing.assert_allclose(run("value_range", levels).ravel(), [-1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(run("value_range(0, 1)", levels).ravel(), [0, 0.5, 1], atol=1e-6)


def test_to_uint8_rounds_instead_of_truncating():
    levels = np.asarray([-3.0, 0.4, 0.6, 254.7, 300.0], np.float32).reshape(1, 5, 1)
    assert run("to_uint8", levels).ravel().tolist() == [0, 0, 1, 255, 255]


def test_one_pixel_and_very_long_images():
    for image in (np.zeros((1, 1, 3), np.uint8), np.zeros((1, 3_000, 3), np.uint8)):
        encoded = jpeg(image)
        for text in ("inception_crop(32)", "random_resized_crop(32)", "resize(32)"):
            assert run(f"decode|{text}", encoded).shape == (32, 32, 3)
    assert run("decode|resize_small(32)", jpeg(np.zeros((1, 1, 3), np.uint8))).shape == (32, 32, 3)


def test_resize_small_refuses_what_would_exhaust_memory():
    sliver = np.zeros((1, 60_000, 1), np.uint8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="would exceed"):
        run("resize_small(256)", sliver)
    assert resizing.MAX_PIXELS < 256 * 256 * 60_000
