import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.data.unreadable_examples import ATTEMPTS, SkipCounter, load_or_next
from tests.training.data.helpers import evaluate, in_store, joined, take, train, write_photos

TEXT = "decode|inception_crop(8)|value_range(-1,1)"


def gray(number):
    return np.full((24, 32, 3), 20 * number)


@pytest.fixture
def folder(tmp_path):
    """Twelve images, two of which are damaged: one empty, one cut short."""
    write_photos(tmp_path, [f"class{number % 2}/{number:02d}.jpg" for number in range(12)], gray)
    (tmp_path / "class0" / "04.jpg").write_bytes(b"")
    damaged = tmp_path / "class1" / "07.jpg"
    damaged.write_bytes(damaged.read_bytes()[:200])
    return data.open(f"folder:{tmp_path}", "train")


@pytest.mark.parametrize(
    ("damaged", "store"), [([4, 7], True), ([11], False), ([10, 11], False), ([11, 0, 1], True)]
)
def test_the_next_example_takes_the_place_and_after_the_last_the_first(tmp_path, damaged, store):
    write_photos(tmp_path, [f"{number % 2}/{number:02d}.jpg" for number in range(12)], gray)
    split = data.open(f"folder:{tmp_path}", "train")
    order = [int(split.example_id(place)[2:-4]) for place in range(12)]
    for place in damaged:
        (tmp_path / split.photos[place].path).write_bytes(b"")
    counter = SkipCounter()
    settings = {"batch_size": 12, "on_error": "skip", "skip_counter": counter}
    (batch,) = take(train(in_store(split) if store else split, TEXT, **settings), 1)
    levels = np.round((batch["image"][:, 0, 0, 0] + 1) * 127.5 / 20).astype(int)
    # Each that is damaged gives its place to the first after it that is not, with its label.
    assert (levels % 2 == np.argmax(batch["label"], axis=1)).all()
    readable = [place for place in range(12) if place not in damaged]
    following = [
        next(place % 12 for place in range(one, one + 12) if place % 12 in readable)
        for one in damaged
    ]
    assert sorted(levels) == sorted(order[place] for place in readable + following)
    ids = [split.example_id(place) for place in damaged]
    assert set(counter.examples) == set(ids)

    def load(index):
        return tf.io.decode_jpeg(split.read(index)["image"])

    # One place counts, once, each that it passes over.
    counter = SkipCounter()
    load_or_next(load, tf.constant(damaged[0], tf.int64), split, counter)
    assert counter.examples == dict.fromkeys(ids[: 1 if damaged == [4, 7] else None], 1)


def test_evaluation_masks_and_load_dataset_leaves_out(folder):
    counter = SkipCounter()
    options = {"on_error": "skip", "skip_counter": counter}
    found = joined(evaluate(folder, "decode|resize(8)", batch_size=8, **options))
    assert found["mask"].tolist().count(1.0) == 10 and len(found["mask"]) == 16
    # What is masked is blank.
    blank = found["mask"] == 0
    assert not found["image"][blank].any() and not found["label"][blank].any()
    assert found["label"][~blank].any(axis=1).all()
    assert counter.examples == {"class0/04.jpg": 1, "class1/07.jpg": 1}

    name = folder.dataset.name
    found = list(data.load_dataset(name, "train", with_ids=True, **options))
    left = {one["id"].numpy().decode() for one in found}
    assert len(found) == len(left - counter.examples.keys()) == 10
    assert counter.examples == {"class0/04.jpg": 2, "class1/07.jpg": 2}
    with pytest.raises(tf.errors.OpError):
        list(data.load_dataset(name, "train"))


def test_a_pipeline_that_fails_everywhere_raises_its_own_error(digits_split):
    counter, split = SkipCounter(), digits_split("train")
    options = {"batch_size": 2, "on_error": "skip", "skip_counter": counter}
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least that large"):
        take(train(split, "decode|random_crop(999)", **options), 1)
    assert ATTEMPTS == 16 and not counter.examples

    def load(index):
        tf.debugging.assert_greater_equal(index, np.int64(20))
        return index

    # After 16 others an example is found.
    assert load_or_next(load, tf.constant(4, tf.int64), split, counter) == 20
    assert len(counter.examples) == 16
    with pytest.raises(tf.errors.InvalidArgumentError):
        load_or_next(load, tf.constant(3, tf.int64), split, counter)
