from itertools import product

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from scipy import stats

from keras_vit.training.data.preprocessing import randaugment
from keras_vit.training.data.preprocessing.geometry import random_resized_crop
from keras_vit.training.data.preprocessing.mixup import one_hot
from keras_vit.training.data.preprocessing.parse_operations import parse
from keras_vit.training.data.preprocessing.preprocess import Preprocess
from keras_vit.training.data.preprocessing.randaugment import OPERATIONS, Strengths
from tests.odd_photos import encode

NOISE = np.random.default_rng(0).integers(0, 256, (90, 130, 3)).astype(np.uint8)
# A smooth image, for which chroma upsampling at a crop's border hardly matters.
SMOOTH = np.stack([*np.mgrid[0:240:2, 0:200], np.full((120, 200), 90)], axis=2).astype(np.uint8)
CROPS = ("inception_crop(96)", "inception_crop(20)", "inception_crop(96, resize=False)")
SQUARE = np.arange(64, dtype=np.float32).reshape(8, 8, 1)
PHOTO = np.random.default_rng(0).integers(20, 230, (48, 64, 3)).astype(np.uint8)
PIL = Image.fromarray(PHOTO)


def jpeg(image, mode="RGB"):
    return encode(Image.fromarray(image).convert(mode), "JPEG", quality=92)


def run(text, encoded, number=0):
    return Preprocess(text)(tf.constant(encoded), (0, number)).numpy()


def drawn(function, count):
    return np.asarray([*tf.data.Dataset.range(count).map(function).as_numpy_iterator()])


@pytest.mark.parametrize("crop", ["inception_crop(64)", "random_resized_crop(64)"])
def test_fused_decode_and_crop_is_decode_then_crop(crop):
    encoded = jpeg(SMOOTH)
    decoded = run("decode", encoded)
    for number in range(12):
        fused = run(f"decode|{crop}", encoded, number)
        difference = np.abs(fused - run(f"pad(0)|{crop}", decoded, number))
        assert difference.max() < 6 and difference.mean() < 0.2
    assert run(f"decode|{crop}", jpeg(SMOOTH, "CMYK")).shape == (64, 64, 3)
    # The fast decoder, which is the usual one, and the other.
    fast, precise = (run(text, jpeg(NOISE)) for text in ("decode", "decode(precise=True)"))
    assert 0 < np.abs(fast.astype(int) - precise).mean() < 3


@pytest.mark.parametrize("crop", [*CROPS, "random_resized_crop(20)", "random_resized_crop(96)"])
@pytest.mark.parametrize("arguments", ["-1, 1", "0, 1", "1, -1", "0, 1, 10, 200"])
def test_a_flip_and_a_range_are_those_of_what_was_resized(crop, arguments):
    for number in range(4):
        # The operation in front keeps the numbers of the others and prevents the fusion.
        rest = f"{crop}|flip_lr|value_range({arguments})"
        apart, fused = (run(f"{first}|{rest}", NOISE, number) for first in ("pad(0)", "decode"))
        np.testing.assert_allclose(fused, apart, rtol=0, atol=5e-5)


def test_areas_and_aspects_of_random_crops():
    # Area is 5 to 100 %, aspect 0.75 to 1.33, and small crops are favored (24 % on average).
    image, process = tf.zeros((256, 512, 3)), Preprocess("inception_crop(8, resize=False)")
    shapes = drawn(lambda k: tf.shape(process(image, tf.stack([5, k]))), 400)
    area, aspect = shapes[:, 0] * shapes[:, 1] / (256 * 512), shapes[:, 1] / shapes[:, 0]
    # No crop of that shape is larger than 1.33 / 2.
    assert 0.045 < area.min() < 0.055 and 0.6 < area.max() < 0.67
    assert 0.73 < aspect.min() < 0.77 and 1.31 < aspect.max() < 1.36
    assert abs(area.mean() - 0.24) < 0.03
    box = random_resized_crop(400, scale=(0.25, 0.5), ratio=(1.0, 1.0)).box  # Uniform.
    sides = drawn(lambda k: box(tf.constant((400, 400, 1)), tf.stack([1, k]))[2:], 300)
    area = sides.prod(axis=1) / 400**2
    assert 0.24 < area.min() < 0.26 and 0.49 < area.max() < 0.51
    assert abs(area.mean() - 0.375) < 0.015


@pytest.mark.rows(
    # The root of 31 is 5.6, rounded to 6, at each of the places.
    ((10, 10), 0.31, {*product(range(5), range(5), [6], [6])}),
    ((2, 9), 0.9, {(0, 3, 2, 2)}),  # None fits: the largest with an aspect of 1, from the middle.
    # The largest has 2.7 rows or columns, rounded.
    ((2, 9), 0.901, {(0, 3, 2, 3)}),
    ((9, 2), 0.901, {(3, 0, 3, 2)}),
)
def test_random_resized_crops_are_of_whole_pixels(shape, scale, boxes):
    ratio = (3 / 4, 4 / 3) if scale == 0.901 else (1.0, 1.0)
    box, whole = random_resized_crop(4, (scale, scale), ratio).box, tf.constant((*shape, 3))
    assert set(map(tuple, drawn(lambda k: box(whole, tf.stack([0, k])), 200))) == boxes


def row(*values):
    return np.asarray(values, np.float32).reshape(1, -1, 1)


@pytest.mark.rows(
    # Of 1×1000 pixels, the widest crop with an aspect up to 4/3 is 1×1, in the middle.
    ("random_resized_crop((1, 1))", row(*range(1000)), [499]),
    # Half-pixel centers; with antialiasing two pixels would be blends of four.
    ("resize((1, 4))", row(*range(8)), [0.5, 2.5, 4.5, 6.5]),
    ("resize((1, 2))", row(*range(8)), [1.5, 5.5]),
    ("resize_small(4)", SQUARE, SQUARE.reshape(4, 2, 4, 2).mean(axis=(1, 3)).ravel()),
    ("value_range", row(0, 127.5, 255), [-1, 0, 1]),
    ("to_uint8", row(-3.0, 0.4, 0.6, 254.7, 300.0), [0, 0, 1, 255, 255]),
    # Of an odd number of pixels that are left, the smaller half is in front.
    ("central_crop((1, 3))", row(*range(6)), [1, 2, 3]),
    ("central_crop((1, 3))", row(*range(5)), [1, 2, 3]),
)
def test_values(text, image, expected):
    np.testing.assert_allclose(run(text, image).ravel(), expected, atol=1e-6)


@pytest.mark.parametrize("text", ["value_range(0, 1)", "decode|value_range(0, 1)"])
def test_pixels_of_few_levels_are_scaled_to_bytes_first(text):
    levels = np.array([[0, 1], [3, 5]], np.uint8)[..., None]
    image = encode(Image.fromarray(levels[..., 0]), "PNG") if "decode" in text else levels
    found = Preprocess(text, pixel_scale=51)(tf.constant(image), (0, 0)).numpy()
    np.testing.assert_allclose(found[..., 0], levels[..., 0] / 5, atol=1e-6)


def test_resize_small_keeps_the_aspect_and_crops_flips_and_shifts_take_their_pixels():
    # 341.3, 342.7 and 2.5 pixels: rounded, halves to the even number.
    rows = ((375, 500, 256), (256, 341)), ((502, 375, 256), (343, 256)), ((2, 5, 1), (1, 2))
    for (*shape, size), expected in rows:
        assert run(f"resize_small({size})", np.zeros((*shape, 3), np.uint8)).shape[:2] == expected
    with pytest.raises(tf.errors.InvalidArgumentError, match="would exceed"):
        run("resize_small(256)", np.zeros((1, 60_000, 1), np.uint8))
    np.testing.assert_array_equal(run("central_crop((80, 100))", NOISE), NOISE[5:85, 15:115])
    image, crop = tf.constant(np.stack(np.mgrid[:20, :30], 2)), Preprocess("random_crop(18)")
    corners = set(map(tuple, drawn(lambda k: crop(image, tf.stack([0, k]))[0, 0], 400)))
    assert corners == {*product(range(3), range(13))}
    np.testing.assert_array_equal(run("flip_lr(1.0)", NOISE), NOISE[:, ::-1])
    np.testing.assert_array_equal(run("flip_lr(0.0)", NOISE), NOISE)
    image = np.zeros((9, 9, 1), np.uint8)  # A random shift moves each way and fills with black.
    image[4, 4] = 255
    shifted = [run("random_shift(2)", image, number) for number in range(150)]
    assert all(each.sum() == 255 for each in shifted)
    places = {tuple(np.argwhere(each)[0][:2]) for each in shifted}
    assert places == {*product(range(2, 7), repeat=2)}


@pytest.mark.parametrize("crop", ["random_crop", "central_crop"])
def test_crops_of_images_too_small_are_explained(crop):
    process = Preprocess(f"{crop}(91)")
    unknown = tf.TensorSpec((None, None, 3), tf.uint8)
    for apply in (process, tf.function(process, [unknown, tf.TensorSpec(2, tf.int32)])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="at least that large"):
            apply(tf.constant(NOISE), tf.constant((0, 0)))


@pytest.mark.parametrize("width", [1, 3_000])
def test_one_pixel_and_very_long_images(width):
    encoded = jpeg(np.zeros((1, width, 3), np.uint8))
    for operation in ("inception_crop", "random_resized_crop", "resize"):
        assert run(f"decode|{operation}(32)", encoded).shape == (32, 32, 3)
    assert run("decode|resize_small(2)", encoded).shape == (2, 2 * width, 3)


@pytest.mark.rows(
    (2, [0, 0, 1, 0]),
    ([3, 1], [0, 1, 0, 1]),
    ([1, 1], [0, 1, 0, 0]),
    ([], [0] * 4),
    (-1, [np.nan] * 4),  # Labels outside of the classes.
    (4, [np.nan] * 4),
    ([0, 9], [np.nan] * 4),
)
def test_one_hot_of_one_class_several_and_none_also_in_a_graph(label, expected):
    for function in (one_hot(4), tf.function(one_hot(4))):
        np.testing.assert_array_equal(function(tf.constant(label, tf.int64)), expected)


def weights(p, count=2_000):
    apply = parse(f"mixup({p})")[0].apply
    one, zero = {"image": tf.ones(())}, {"image": tf.zeros(())}
    return drawn(lambda k: apply(one, zero, tf.stack([3, k]))["image"], count)


def test_weights_follow_the_folded_beta_distribution():
    for p in (0.2, 1.0):
        found, law = weights(p), stats.beta(p, p)
        assert found.min() >= 0.5 and found.max() <= 1
        assert stats.kstest(found, lambda x, law=law: law.cdf(x) - law.cdf(1 - x)).pvalue > 0.01
    small = weights(0.001, 500)
    assert np.isfinite(small).all() and (small > 0.999).mean() > 0.98
    assert (weights(0, 3) == 1).all()


def augment(name, magnitude, image=PHOTO, sign=1.0, place=(0.5, 0.5)):
    out = OPERATIONS[name](tf.constant(image), Strengths(magnitude), sign, tf.constant(place))
    assert out.dtype == tf.uint8
    return out.numpy()


def test_sixteen_augmentations_all_of_which_are_drawn():
    assert len(OPERATIONS) == 16
    process = Preprocess("randaugment(1, 15)")
    seen = {image.tobytes() for image in drawn(lambda k: process(tf.constant(PHOTO), [9, k]), 400)}
    pairs = product(OPERATIONS.keys() - {"Cutout"}, (-1.0, 1.0))
    expected = {augment(name, 15, sign=sign).tobytes(): name for name, sign in pairs}
    assert not {expected[image] for image in expected.keys() - seen}
    assert seen - expected.keys(), "Cutout"
    # Floats are rounded to bytes first.
    rounded = process(tf.constant(PHOTO - np.float32(0.4)), (1, 2))
    np.testing.assert_array_equal(rounded, process(tf.constant(PHOTO), (1, 2)))


def test_layers_signs_and_places_are_drawn_apart(monkeypatch):
    counted = {name: lambda image, *_, k=k: image * 16 + k for k, name in enumerate(OPERATIONS)}
    monkeypatch.setattr(randaugment, "OPERATIONS", counted)
    black, process = tf.zeros((1, 1, 3), tf.uint8), Preprocess("randaugment(2, 15)")
    first, second = np.divmod(drawn(lambda k: process(black, [0, k])[0, 0, 0], 512), 16)
    counts = np.histogram2d(first, second, bins=16, range=((0, 16), (0, 16)))[0]
    assert stats.chi2_contingency(counts + 1e-9).pvalue > 0.01
    bits = {  # A bit of the operation, of the sign and of the place.
        k: lambda image, at, sign, place, k=k: (
            image
            + tf.cast(8 * (k % 2) + 4 * tf.cast(sign > 0, tf.int32), tf.uint8)
            + tf.cast(tf.reduce_sum(tf.cast(place > 0.5, tf.int32) * [2, 1]), tf.uint8)
        )
        for k in range(16)
    }
    monkeypatch.setattr(randaugment, "OPERATIONS", bits)
    process = Preprocess("randaugment(1, 15)")
    counts = np.bincount(drawn(lambda k: process(black, [1, k])[0, 0, 0], 512), minlength=16)
    assert stats.chisquare(counts).pvalue > 0.01


@pytest.mark.rows(
    (10, 0, 4), (15, 128, 6), (20, 0, 8), (5, 128, 2), (9, 230, 3), (0, 0, 1), (25, 128, 1)
)
def test_solarize_compares_with_a_byte_and_posterize_keeps_high_bits(magnitude, threshold, kept):
    expected = np.where(threshold > PHOTO, PHOTO, 255 - PHOTO)
    np.testing.assert_array_equal(augment("Solarize", magnitude), expected)
    mask = (0xFF << (8 - kept)) & 0xFF
    np.testing.assert_array_equal(augment("Posterize", magnitude), PHOTO & mask)


def test_colors_are_pils_up_to_rounding():
    constant = 48 * 64 // 256  # Contrast blends toward a constant of the size.
    expected = np.clip(constant + 1.9 * (PHOTO.astype(np.float32) - constant), 0, 255)
    np.testing.assert_array_equal(augment("Contrast", 10), expected.astype(np.uint8))
    gray = np.full((224, 224, 3), 100, np.uint8)
    # At 224×224 the constant is 196.
    np.testing.assert_allclose(augment("Contrast", 0, gray), int(196 + 0.1 * (100 - 196)), atol=1)

    photo = (PHOTO // 2 + 30).astype(np.uint8)
    pil, flat = Image.fromarray(photo), np.full((8, 8, 3), 77, np.uint8)
    ours = augment("AutoContrast", 10, photo).astype(int)
    assert np.abs(ours - np.asarray(ImageOps.autocontrast(pil))).max() <= 1
    np.testing.assert_array_equal(augment("Equalize", 10, photo), ImageOps.equalize(pil))
    for name in ("AutoContrast", "Equalize"):
        np.testing.assert_array_equal(augment(name, 10, flat), flat)
    for name in ("Brightness", "Color"):
        expected = np.asarray(getattr(ImageEnhance, name)(PIL).enhance(1.9)).astype(int)
        assert np.abs(augment(name, 10) - expected).max() <= 2
    added = np.where(PHOTO < 128, np.minimum(PHOTO.astype(int) + 110, 255), PHOTO)
    np.testing.assert_array_equal(augment("SolarizeAdd", 10), added)
    np.testing.assert_array_equal(augment("Invert", 10), 255 - PHOTO)

    # Sharpness keeps the border.
    smooth = np.asarray(PIL.filter(ImageFilter.SMOOTH)).astype(np.float32)
    expected = np.clip(smooth + 1.9 * (PHOTO - smooth), 0, 255)
    ours = augment("Sharpness", 10)
    assert np.abs(ours[1:-1, 1:-1] - expected[1:-1, 1:-1]).max() <= 2.5
    np.testing.assert_array_equal(ours[0], PHOTO[0])


def test_geometry_moves_pixels_where_it_says_and_fills_with_gray():
    right, up = augment("TranslateX", 1, sign=-1.0), augment("TranslateY", 1)
    sheared = augment("ShearX", 10)
    np.testing.assert_array_equal(right[:, 10:], PHOTO[:, :-10])
    np.testing.assert_array_equal(up[:-10], PHOTO[10:])
    assert (right[:, :10] == 128).all() and (up[-10:] == 128).all()
    np.testing.assert_array_equal(sheared[0], PHOTO[0])
    np.testing.assert_array_equal(sheared[10, : 64 - 3], PHOTO[10, 3:])
    np.testing.assert_array_equal(augment("ShearY", 10)[:, 0], PHOTO[:, 0])
    odd = np.zeros((31, 31, 3), np.uint8)
    odd[15, 15], odd[15, 25] = 250, 200
    turned, back = (augment("Rotate", 30, odd, sign)[..., 0] for sign in (1.0, -1.0))  # 90 degrees
    assert (turned[15, 15], turned[5, 15], back[25, 15]) == (250, 200, 200)
    image = np.zeros((100, 100, 3), np.uint8)  # Cutout grays a square around its center.
    cut, corner = (augment("Cutout", 5, image, 1, at)[..., 0] for at in ((0.5, 0.5), (0.0, 0.999)))
    assert (cut == 128).sum() == 40 * 40 and (cut[30:70, 30:70] == 128).all()
    assert (corner == 128).sum() == 20 * 21 and (corner[:20, 79:] == 128).all()
