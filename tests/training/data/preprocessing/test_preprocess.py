import numpy as np
import pytest
import tensorflow as tf

from training.data.preprocessing.operation import REGISTRY, parse
from training.data.preprocessing.preprocess import Preprocess

PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype(np.uint8)
JPEG = tf.io.encode_jpeg(PHOTO, quality=95)
PNG = tf.io.encode_png(PHOTO)

# A text for every operation on images, deterministic or not.
TEXTS = {
    "decode": "decode",
    "inception_crop": "decode|inception_crop(24)",
    "random_resized_crop": "decode|random_resized_crop((16, 24))",
    "resize": "decode|resize(24)",
    "resize_small": "decode|resize_small(24)",
    "random_crop": "decode|random_crop(24)",
    "central_crop": "decode|central_crop((20, 24))",
    "pad": "decode|pad(2)",
    "random_shift": "decode|random_shift(5)",
    "flip_lr": "decode|flip_lr",
    "value_range": "decode|value_range(-1, 1)",
    "to_uint8": "decode|resize(8)|to_uint8",
    "on_device": "decode|resize(8)|on_device",
    "randaugment": "decode|resize(24)|randaugment(2, 15)",
    "augreg": "decode|resize(24)|augreg('medium2')",
    "bit_train": "decode|bit_train(32, 32)",
    "bit_eval": "decode|bit_eval(32, 32)",
}
ELSEWHERE = {"mixup", "one_hot"}


def test_every_operation_is_run_below():
    assert set(REGISTRY) == {*TEXTS, *ELSEWHERE}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_eagerly_and_inside_tf_data_alike(text):
    process = Preprocess(text)
    photos, seeds = [*[JPEG] * 3, *[PNG] * 3], [(7, k) for k in range(6)]
    dataset = tf.data.Dataset.from_tensor_slices((photos, seeds)).map(process)
    for photo, seed, image in zip(photos, seeds, dataset, strict=True):
        np.testing.assert_array_equal(process(photo, seed), image)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_random_operations_follow_their_seed(text):
    process = Preprocess(text)
    images = [process(PNG, (0, k)).numpy().tobytes() for k in (1, 1, *range(2, 20))]
    assert images[0] == images[1]
    random = any(op.random for op in parse(text))
    assert (len(set(images)) > 1) == random


def test_operations_draw_independently_of_each_other():
    # The same operation twice must not repeat its draw.
    twice = Preprocess("decode|flip_lr|flip_lr")
    once = Preprocess("decode|flip_lr")
    changed = [not np.array_equal(twice(PNG, (3, k)), PHOTO) for k in range(40)]
    assert 0.2 < np.mean(changed) < 0.8
    flipped = [np.array_equal(once(PNG, (3, k)), PHOTO[:, ::-1]) for k in range(200)]
    assert 0.4 < np.mean(flipped) < 0.6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decode|inceptoin_crop(224)", "Unknown operation 'inceptoin_crop'.*inception_crop"),
        ("decode|resize()", r"Expected resize\(size, method"),
        ("decode|resize(224, antialiased=True)", r"Expected resize\(size, method"),
        ("decode||resize(2)", "Expected operations joined by"),
        ("decode, resize(2)", "Expected operations joined by"),
        ("decode|resize(__import__('os'))", r"Expected resize\("),
        ("decode|value_range(0, 1, 5, 5)", r"Expected value_range\(low"),
        ("decode(2)", "channels must be 1 or 3, not 2"),
        ("decode|inception_crop(0)", "at least one pixel, not 0"),
        ("decode|augreg('heavy')", "'heavy'.*strong2"),
        ("decode|on_device|flip_lr", "only deterministic operations after on_device"),
    ],
)
def test_wrong_texts_are_explained(text, message):
    with pytest.raises(ValueError, match=message):
        Preprocess(text)


def test_augreg_is_randaugment_and_mixup_of_its_table():
    assert [op.name for op in parse("augreg('none')")] == []
    assert [op.name for op in parse("augreg('light1')")] == ["randaugment"]
    assert [op.name for op in parse("augreg('strong2')")] == ["randaugment", "mixup"]


def test_what_follows_on_device_is_left_to_the_training_step():
    text = "decode|resize(8)|to_uint8"
    split = Preprocess(f"{text}|on_device|value_range(-1, 1)")
    on_host = split(PNG, (0, 0))
    assert on_host.dtype == tf.uint8
    whole = Preprocess(f"{text}|value_range(-1, 1)")(PNG, (0, 0))
    np.testing.assert_array_equal(split.on_device(on_host[None])[0], whole)
    np.testing.assert_array_equal(whole, Preprocess(f"{text}|value_range(-1, 1)").on_device(whole))


def test_pixel_scale_comes_right_after_decoding():
    binary = tf.io.encode_png(np.eye(8, dtype=np.uint8)[..., None])
    image = Preprocess("decode|resize(8)", pixel_scale=255)(binary, (0, 0))
    np.testing.assert_array_equal(image, np.repeat(np.eye(8)[..., None] * 255, 3, axis=2))
