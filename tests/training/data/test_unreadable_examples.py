import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.data.unreadable_examples import ATTEMPTS, SkipCounter, load_or_next
from tests.training.data.helpers import evaluate, in_store, joined, take, train, write_photos

TEXT = "decode|inception_crop(8)|value_range(-1,1)"


@pytest.mark.parametrize(
    ("damaged", "store"), [([4, 7], True), ([11], False), ([10, 11], False), ([11, 0, 1], True)]
)
def test_the_next_example_takes_the_place_and_after_the_last_the_first(tmp_path, damaged, store):
    names = [f"{number % 2}/{number:02d}.jpg" for number in range(12)]
    write_photos(tmp_path, names, lambda number: np.full((24, 32, 3), 20 * number))
    split = data.open(f"folder:{tmp_path}", "train")
    order = [int(split.example_id(place)[2:-4]) for place in range(12)]
    for length, place in enumerate(damaged):
        file = tmp_path / split.photos[place].path
        file.write_bytes(file.read_bytes()[: 200 * length])
    split, counter = in_store(split) if store else split, SkipCounter()
    skipping = {"on_error": "skip", "skip_counter": counter}
    (batch,) = take(train(split, TEXT, batch_size=12, **skipping), 1)
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

    # Evaluation masks them, as blank as what fills its batches, and `load_dataset` leaves them out.
    found = joined(evaluate(split, "decode|resize(8)", batch_size=16, **skipping))
    np.testing.assert_array_equal(found["mask"], [place in readable for place in range(16)])
    blank = found["mask"] == 0
    assert not found["image"][blank].any() and not found["label"][blank].any()
    kept = data.load_dataset(split.dataset.name, "train", with_ids=True, **skipping)
    found = [one["id"].decode() for one in kept.as_numpy_iterator()]
    assert found == [split.example_id(place) for place in readable]
    with pytest.raises(tf.errors.OpError):
        evaluate(split, "decode|resize(8)")

    def load(index):
        return tf.io.decode_jpeg(split.read(index)["image"])

    # One place counts, once, each that it passes over.
    counter = SkipCounter()
    load_or_next(load, tf.constant(damaged[0], tf.int64), split, counter)
    assert counter.examples == dict.fromkeys(ids[: 1 if damaged == [4, 7] else None], 1)


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
