import random

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.training.data.helpers import encoded, evaluate, in_store, joined, take
from tests.training.data.helpers import train as train_split
from training import data
from training.data.preprocessing.preprocess import Preprocess
from training.data.unreadable_examples import ATTEMPTS, SkipCounter

TEXT = "decode|inception_crop(8)|value_range(-1,1)"


def gray(level, suffix="jpg", size=(24, 32)):
    return encoded(np.full((*size, 3), level, np.uint8), suffix)


@pytest.fixture
def folder(tmp_path):
    """Twelve images, two of which are damaged: one empty, one cut short."""
    for number in range(12):
        path = tmp_path / f"class{number % 2}" / f"{number:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gray(number * 20))
    (tmp_path / "class0" / "04.jpg").write_bytes(b"")
    damaged = tmp_path / "class1" / "07.jpg"
    damaged.write_bytes(damaged.read_bytes()[:200])
    return f"folder:{tmp_path}"


DAMAGED = {"class0/04.jpg", "class1/07.jpg"}


def train(split, on_error="skip", **settings):
    return train_split(split, TEXT, **{"batch_size": 6, "on_error": on_error, **settings})


def test_raise_names_the_error(folder):
    with pytest.raises(tf.errors.OpError):
        take(train(folder, "raise"), 2)


@pytest.mark.parametrize("store", [False, True])
def test_skip_fills_the_place_and_counts(folder, store):
    split, counter, unused = data.open(folder, "train"), SkipCounter(), SkipCounter()
    dataset = train(in_store(split) if store else split, skip_counter=counter)
    batches = take(dataset, 2)
    assert [batch["image"].shape[0] for batch in batches] == [6, 6]
    found = joined(batches)
    levels = np.round((found["image"][:, 0, 0, 0] + 1) * 127.5 / 20).astype(int)
    # The neighbor came with its own label.
    assert (levels % 2 == np.argmax(found["label"], axis=1)).all()
    assert set(levels) == set(range(12)) - {4, 7}
    assert set(counter.examples) == DAMAGED
    # A run counts only what it skips.
    take(train(data.open(folder, "train[:1]"), "raise", skip_counter=unused), 1)
    assert not unused.examples


def test_skipping_keeps_the_order_of_all_others(folder):
    whole = take(train(folder), 4)
    for one, two in zip(take(train(folder, start_step=2), 2), whole[2:], strict=True):
        np.testing.assert_array_equal(one["image"], two["image"])


@pytest.mark.parametrize("damaged", [[11], [10, 11], [11, 0, 1]])
def test_after_the_last_comes_the_first(tmp_path, damaged):
    (tmp_path / "a").mkdir()
    for number in range(12):
        (tmp_path / "a" / f"{number}.jpg").write_bytes(gray(number * 20))
    name = f"folder:{tmp_path}"
    split = data.open(name, "train")
    order = [int(split.example_id(place)[2:-4]) for place in range(12)]
    for place in damaged:
        (tmp_path / split.photos[place].path).write_bytes(b"")
    counter = SkipCounter()
    (batch,) = take(train(name, batch_size=12, skip_counter=counter), 1)
    levels = np.round((batch["image"][:, 0, 0, 0] + 1) * 127.5 / 20).astype(int).tolist()
    # Each that is damaged gives its place to the first after it that is not.
    first = next(place for place in (0, 1, 2) if place not in damaged)
    expected = [order[place] for place in range(12) if place not in damaged]
    assert sorted(levels) == sorted(expected + [order[first]] * len(damaged))
    ids = {split.example_id(place) for place in damaged}
    assert set(counter.examples) == ids


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("store", [False, True])
def test_a_damaged_record_gives_its_place_to_the_next(digits_split, damaged_digits, store, cache):
    split = in_store(damaged_digits) if store else damaged_digits
    whole = take(train(digits_split("train"), batch_size=100), 15)
    counter = SkipCounter()
    options = {"batch_size": 100, "cache": cache}
    skipping = take(train(split, **options, skip_counter=counter), 15)
    differing = [
        (one["image"] != two["image"]).any(axis=(1, 2, 3)).sum()
        for one, two in zip(whole, skipping, strict=True)
    ]
    # An epoch is 1438 images; the second may begin with it.
    assert 1 <= sum(differing) <= 2
    assert set(counter.examples) == {"sklearn_digits-train.tfrecord-00000-of-00001__700"}
    with pytest.raises(tf.errors.DataLossError):
        take(train(split, "raise", batch_size=100), 15)


def test_evaluation_masks_and_counts(folder):
    counter = SkipCounter()
    found = joined(
        evaluate(folder, "decode|resize(8)", batch_size=8, on_error="skip", skip_counter=counter)
    )
    assert found["mask"].tolist().count(1.0) == 10
    assert len(found["mask"]) == 16
    # What is masked is blank.
    blank = found["mask"] == 0
    assert not found["image"][blank].any() and not found["label"][blank].any()
    assert found["label"][~blank].any(axis=1).all()
    assert counter.examples == dict.fromkeys(DAMAGED, 1)
    assert counter.count == 2


def test_load_dataset_leaves_out_and_counts(folder):
    counter = SkipCounter()
    options = {"with_ids": True, "on_error": "skip", "skip_counter": counter}
    found = list(data.load_dataset(folder, "train", **options))
    assert len(found) == 10
    assert not DAMAGED & {one["id"].numpy().decode() for one in found}
    assert counter.examples == dict.fromkeys(DAMAGED, 1)
    with pytest.raises(tf.errors.OpError):
        list(data.load_dataset(folder, "train"))


def test_a_pipeline_that_fails_everywhere_raises_its_own_error(digits_split):
    counter = SkipCounter()
    options = {"batch_size": 2, "on_error": "skip", "skip_counter": counter}
    dataset = train_split(digits_split("train"), "decode|random_crop(999)", **options)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least that large"):
        take(dataset, 1)
    assert ATTEMPTS == 16 and not counter.count


@pytest.mark.parametrize("file_format", ["jpg", "png", "gif", "bmp", "webp", "tiff"])
def test_fuzzed_bytes_decode_or_raise(file_format):
    rng = random.Random(0)
    seeds = [gray(90, file_format, (17, 23))]
    if file_format == "jpg":
        noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
        for mode in ("RGB", "L", "CMYK"):
            pixels = np.asarray(Image.fromarray(noise).convert(mode))
            seeds.append(encoded(pixels, "jpg", mode, progressive=mode == "RGB"))

    def compiled(text):
        process = Preprocess(text)
        return tf.function(lambda data: process(data, (0, 0)), autograph=False)

    texts = (TEXT, "decode|resize(8)", "decode|resize_small(8)|central_crop(8)")
    functions = [compiled(text) for text in texts]
    outcomes = {"decoded": 0, "refused": 0}
    for _ in range(120):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice([1, 2, 8, 64])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        for function in functions:
            try:
                image = function(tf.constant(bytes(data)))
                assert image.shape == (8, 8, 3)
                assert np.isfinite(image).all()
                outcomes["decoded"] += 1
            except (tf.errors.InvalidArgumentError, tf.errors.DataLossError):
                outcomes["refused"] += 1
    assert outcomes["refused"] > 0
    # A PNG's checksums refuse every change; other formats decode what they can.
    assert (outcomes["decoded"] > 0) == (file_format != "png")


def test_a_header_that_promises_a_huge_image_is_refused():
    for file_format, place in (("jpg", None), ("png", 16)):
        data = bytearray(gray(90, file_format))
        if file_format == "jpg":
            place = data.index(b"\xff\xc0") + 5
            data[place : place + 4] = b"\xff\xff\xff\xff"
        else:
            data[place : place + 8] = b"\x00\x0f\xff\xff\x00\x0f\xff\xff"
        with pytest.raises(tf.errors.InvalidArgumentError):
            Preprocess("decode|resize(8)")(tf.constant(bytes(data)), (0, 0))
