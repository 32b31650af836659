import time

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.data import pipeline
from keras_vit.training.data.order import example_order
from tests.training.data import helpers
from tests.training.data.helpers import (
    PLAIN,
    RANDOM,
    assert_equal,
    evaluate,
    in_store,
    joined,
    long,
    read_by,
    take,
)


@pytest.fixture
def train(digits_split):
    """Returns `train(text, split, **settings)`: training data of the digits."""
    return lambda text=RANDOM, split="train[:100]", **settings: helpers.train(
        digits_split(split), text, **settings
    )


def test_images_of_static_shapes_keep_their_labels(train, digits_dir):
    spec = train().element_spec
    assert spec["image"] == tf.TensorSpec((32, 10, 10, 3), tf.float32)
    assert spec["label"] == tf.TensorSpec((32, 10), tf.float32)
    stored = data.load_dataset(
        "digits", "train[:100]", data_dir=digits_dir, preprocess=PLAIN, one_hot=True
    )
    labels = {one["image"].numpy().tobytes(): one["label"].numpy() for one in stored}
    for batch in take(train(PLAIN), 4):
        for image, label in zip(batch["image"], batch["label"], strict=True):
            np.testing.assert_array_equal(labels[image.tobytes()], label)


@pytest.mark.parametrize(
    ("start_step", "mixup_p"), [(1, 0.3), (10, 0.0), long(1, 0.0), long(10, 0.3)]
)
def test_starting_at_a_step_continues_the_run(train, start_step, mixup_p):
    whole = take(train(mixup_p=mixup_p), start_step + 3)
    assert_equal(take(train(mixup_p=mixup_p, start_step=start_step), 3), whole[start_step:])


@pytest.fixture
def counted(digits_split):
    """The training digits, and the index of every record that is read of them, in order."""
    split, found = digits_split("train"), []

    def record(index):
        note = tf.numpy_function(lambda each: found.append(int(each)) or each, [index], tf.int64)
        return split.reader.record(tf.ensure_shape(note, []))

    return read_by(split, record=record), found


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    ("workers", "mixup_p", "slots"),
    # With mixup, the one before a share's first as well.
    [(1, 0.0, range(32)), (4, 0.0, range(8, 16)), (4, 0.3, range(7, 16))],
)
def test_any_step_reads_its_share_and_no_more(counted, workers, mixup_p, slots, remote):
    (split, reads), start_step = counted, 10_000
    worker = {"num_input_pipelines": workers, "input_pipeline_id": int(workers > 1)}
    settings = {"start_step": start_step, "mixup_p": mixup_p, **worker}
    take(helpers.train(in_store(split) if remote else split, PLAIN, **settings), 3)
    count = 3 * len(slots)
    assert count <= len(reads) < 1438
    # At most some hundreds are read at the same time.
    order = example_order(1438, 5, 32 * start_step, 32, slots).take(count + 300)
    first = {*reads[:count]}
    assert len(first) == count and first <= {int(index) for _, index in order}


@pytest.mark.parametrize(
    "settings", [{}, {"mixup_p": 0.3, "num_input_pipelines": 2, "input_pipeline_id": 1}], ids=str
)
def test_a_store_gives_the_same_batches(digits_split, settings):
    # Two epochs and a half, from within the first.
    split, settings = digits_split("train[:200]"), {"start_step": 2, **settings}
    expected = take(helpers.train(split, **settings), 14)
    for on_error, cache in (("raise", False), ("skip", not settings.get("mixup_p"))):
        found = helpers.train(in_store(split), **settings, on_error=on_error, cache=cache)
        assert_equal(take(found, 14), expected)


def test_what_is_kept_is_not_asked_for_again(counted):
    split, reads = counted
    dataset = helpers.train(in_store(split), PLAIN, cache=True, batch_size=1438)
    take(dataset, 1)
    reads.clear()
    # What was on its way when the first epoch ended is done by the third.
    take(dataset, 3)
    assert len(reads) < 1438


def test_a_store_is_sent_many_requests_at_a_time(digits_split):
    split = digits_split("train")
    running, most = set(), []

    def slow(index):
        running.add(int(index))
        most.append(len(running))
        time.sleep(0.02)
        running.remove(int(index))
        return index

    def record(index):
        index = tf.ensure_shape(tf.py_function(slow, [index], tf.int64), [])
        return split.reader.record(index)

    take(helpers.train(read_by(split, record=record, remote=True), PLAIN), 8)
    assert max(most) > 8


@pytest.mark.parametrize(("workers", "mixup_p"), [(2, 0.0), (4, 0.3), long(2, 0.3), long(8, 0.0)])
def test_shares_of_any_number_of_workers_make_up_the_batch(train, workers, mixup_p):
    settings = {"mixup_p": mixup_p, "start_step": 2}
    whole = take(train(**settings), 3)
    shares = [
        take(train(**settings, num_input_pipelines=workers, input_pipeline_id=worker), 3)
        for worker in range(workers)
    ]
    assert_equal([joined([share[k] for share in shares]) for k in range(3)], whole)


def test_seeds_change_the_data_and_epochs_the_augmentation(train):
    one, same, other = (take(train(seed=seed), 3) for seed in (5, 5, 6))
    assert_equal(one, same)
    assert not np.array_equal(one[0]["image"], other[0]["image"])
    images = np.concatenate([batch["image"] for batch in take(train(split="train[:1]"), 1)])
    assert len({image.tobytes() for image in images}) > 10


def test_mixup_blends_with_the_image_before(train):
    plain = take(train(PLAIN), 2)
    mixed = take(train(PLAIN, mixup_p=0.5), 2)
    weights = []
    for one, two in zip(plain, mixed, strict=True):
        label, partner = one["label"], np.roll(one["label"], 1, axis=0)
        differing = np.flatnonzero((label != partner).any(axis=1))
        weight = two["label"][differing[0]] @ label[differing[0]]
        weights.append(weight)
        np.testing.assert_allclose(two["label"], weight * label + (1 - weight) * partner, atol=1e-6)
        images = weight * one["image"] + (1 - weight) * np.roll(one["image"], 1, axis=0)
        np.testing.assert_allclose(two["image"], images, atol=1e-3)
    assert weights[0] != weights[1]
    # The draw of a step is that of the seed and the step alone.
    np.testing.assert_allclose(weights, [0.58867502, 0.93067235], rtol=1e-5)
    assert_equal(take(train(PLAIN, mixup_p=0.5, start_step=1), 1), mixed[1:])
    assert_equal(take(train(f"{PLAIN}|mixup(0.5)"), 2), mixed)


def test_large_hosts_fill_several_batches_at_once(train, monkeypatch):
    one = take(train(mixup_p=0.3), 7)
    monkeypatch.setattr(pipeline.os, "cpu_count", lambda: 64)
    assert_equal(take(train(mixup_p=0.3), 7), one)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 30, "num_input_pipelines": 4}, "multiple of num_input_pipelines"),
        ({"num_input_pipelines": 2, "input_pipeline_id": 2}, "input_pipeline_id"),
        ({"on_error": "ignore"}, "one of"),
        ({"text": "decode|value_range"}, "add a resize or a crop"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(train, digits_split, changes, message):
    with pytest.raises(ValueError, match=message):
        train(**changes)
    with pytest.raises(ValueError, match="no mixup in evaluation"):
        evaluate(digits_split("test"), f"{PLAIN}|mixup(0.2)")


@pytest.mark.parametrize(
    ("batch_size", "workers"),
    [(64, 1), (200, 2), (400, 1), long(64, 4), long(200, 1), long(400, 4)],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_evaluation_pads_and_never_drops(digits_split, digits_dir, batch_size, workers, on_error):
    settings = {"batch_size": batch_size, "num_input_pipelines": workers, "on_error": on_error}
    shares = [
        evaluate(digits_split("test[:200]"), **settings, input_pipeline_id=worker)
        for worker in range(workers)
    ]
    assert {len(share) for share in shares} == {-(-200 // batch_size)}
    batches = [joined(parts) for parts in zip(*shares, strict=True)]
    assert {len(batch["mask"]) for batch in batches} == {batch_size}
    found = joined(batches)
    masks = found["mask"]
    np.testing.assert_array_equal(masks, [1.0] * 200 + [0.0] * (len(masks) - 200))
    # Blank rows are of zeros altogether.
    assert not found["image"][200:].any() and not found["label"][200:].any()
    settings = {"data_dir": digits_dir, "preprocess": PLAIN, "one_hot": True}
    stored = list(data.load_dataset("digits", "test[:200]", **settings))
    for key in ("image", "label"):
        np.testing.assert_array_equal(found[key][:200], [one[key].numpy() for one in stored])


def test_images_without_a_real_label_are_masked(tiny, resize_row):
    labels = [[3, 5], [], [7], []]
    image = np.zeros((8, 8, 3), np.uint8)
    data_dir = tiny(
        "imagenet2012_real",
        {
            "validation": [
                {"image": image, "real_label": label, "original_label": 7} for label in labels
            ]
        },
    )
    resize_row("imagenet2012_real", {"validation": 4})
    split = data.open("real", "test", data_dir)
    (batch,) = evaluate(split, "decode|resize(4)", batch_size=6)
    found = {
        tuple(np.flatnonzero(label)): (mask, np.flatnonzero(original).tolist())
        for label, mask, original in zip(
            *(batch["label"], batch["mask"], batch["original_label"]), strict=True
        )
        if original.any()
    }
    assert found == {(3, 5): (1.0, [7]), (7,): (1.0, [7]), (): (0.0, [7])}
    assert batch["mask"].sum() == 2
