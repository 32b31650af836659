import functools
import time
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.config import default_config
from keras_vit.training.data import decoded_image_cache, tf_data_batches
from keras_vit.training.data.order import example_order, permute
from keras_vit.training.data.run_data import RunData
from keras_vit.training.data.skip_unreadable import SkipCounter
from keras_vit.training.errors import UsageError
from tests.training.data import helpers
from tests.training.data.helpers import PLAIN, assert_equal, joined, read_by, take


@pytest.fixture
def train(digits_split):
    return lambda text=helpers.RANDOM, split="train[:100]", **settings: helpers.train(
        digits_split(split), text, **settings
    )


def test_images_of_static_shapes_keep_their_labels_and_follow_the_seed(train, data_dir):
    spec = train().element_spec
    assert spec["image"] == tf.TensorSpec((32, 10, 10, 3), tf.float32)
    assert spec["label"] == tf.TensorSpec((32, 10), tf.float32)
    settings = {"data_dir": data_dir, "preprocess": PLAIN, "one_hot": True}
    stored = data.load_dataset("digits", "train[:100]", **settings)
    labels = {one["image"].numpy().tobytes(): one["label"].numpy() for one in stored}
    batch = joined(take(train(PLAIN), 4))
    for image, label in zip(batch["image"], batch["label"], strict=True):
        np.testing.assert_array_equal(labels[image.tobytes()], label)
    # Seeds change the data, and epochs the augmentation.
    one, same, other = (take(train(seed=seed), 3) for seed in (5, 5, 6))
    assert_equal(one, same)
    assert not np.array_equal(one[0]["image"], other[0]["image"])
    (batch,) = take(train(split="train[:1]"), 1)
    assert len({image.tobytes() for image in batch["image"]}) > 10


@pytest.mark.rows(
    (1, 1, 0.3, True, {}),
    (10, 2, 0.0, False, {"cache": "on"}),
    (2, 1, 0.0, True, {"cache": "auto", "on_error": "skip"}),
    long=[(2, 4, 0.3, False, {})],
)
def test_steps_and_shares(start_step, workers, mixup_p, remote, changes, digits_split, monkeypatch):
    split = digits_split("train[:100]")
    whole = take(helpers.train(split, mixup_p=mixup_p), start_step + 6)
    split = read_by(split, remote=remote)
    settings = {"start_step": start_step, "mixup_p": mixup_p, "num_input_pipelines": workers}
    # Large hosts fill several batches at once.
    monkeypatch.setattr(tf_data_batches.os, "cpu_count", lambda: 64)
    share = functools.partial(helpers.train, split, **settings, **changes)
    shares = [take(share(input_pipeline_id=worker), 6) for worker in range(workers)]
    assert_equal([joined([share[k] for share in shares]) for k in range(6)], whole[start_step:])


def noted(split, note, **changes):
    def record(index):
        index = tf.numpy_function(lambda each: note(int(each)) or each, [index], tf.int64)
        return split.reader.record(tf.ensure_shape(index, []))

    return read_by(split, record=record, **changes)


@pytest.fixture
def counted(digits_split):
    """Returns a function that returns a split, and a list of the numbers that it reads."""

    def count(text="train"):
        found = []
        return noted(digits_split(text), found.append), found

    return count


@pytest.mark.rows(  # With mixup, the one before a share's first as well.
    (1, 0.0, range(32), False), (4, 0.0, range(8, 16), True), (4, 0.3, range(7, 16), False)
)
def test_any_step_reads_its_share_and_no_more(workers, mixup_p, slots, remote, counted):
    (split, reads), start_step = counted(), 10_000
    worker = {"num_input_pipelines": workers, "input_pipeline_id": int(workers > 1)}
    settings = {"start_step": start_step, "mixup_p": mixup_p, **worker}
    take(helpers.train(read_by(split, remote=remote), PLAIN, **settings), 3)
    count = 3 * len(slots)
    assert count <= len(reads) < 1438
    # At most some hundreds are read at the same time.
    order = example_order(1438, 5, 32 * start_step, 32, slots).take(count + 300)
    first = {*reads[:count]}
    assert len(first) == count and first <= {int(index) for _, index in order}


def test_a_store_is_sent_many_requests_at_a_time(digits_split):
    running, most = set(), []

    def slow(index):
        running.add(index)
        most.append(len(running))
        time.sleep(0.02)
        running.remove(index)

    take(helpers.train(noted(digits_split("train"), slow, remote=True), PLAIN), 8)
    assert max(most) > 8


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
    np.testing.assert_allclose(weights, [0.9918538331985474, 0.9799139499664307], rtol=1e-5)
    assert_equal(take(train(PLAIN, mixup_p=0.5, start_step=1), 1), mixed[1:])
    assert_equal(take(train(f"{PLAIN}|mixup(0.5)"), 2), mixed)


def test_batches_are_mixed_once(data_dir):
    config = default_config()
    config.update(dataset="digits", data_dir=str(data_dir), mixup_p=0.2, train_split="test")
    config.train_preprocess = f"{PLAIN}|mixup(0.5)"
    with pytest.raises(UsageError, match=r"config\.mixup_p: expected one operation on batches"):
        RunData(config)


@pytest.mark.rows(
    ({"batch_size": 30, "num_input_pipelines": 4}, "multiple of num_input_pipelines"),
    ({"num_input_pipelines": 2, "input_pipeline_id": 2}, "input_pipeline_id"),
    ({"text": "resize(8)", "cache": "on"}, "begin with decode"),
    ({"text": "decode|value_range"}, "add a resize or a crop"),
)
def test_arguments_that_do_not_fit_are_explained(changes, message, train, digits_split):
    with pytest.raises(ValueError, match=message):
        train(**changes)
    with pytest.raises(ValueError, match="no mixup in evaluation"):
        helpers.evaluate(digits_split("test"), f"{PLAIN}|mixup(0.2)")


@pytest.mark.rows((64, 1, "skip"), (200, 2, "raise"), (400, 4, "skip"), long=[(64, 4, "raise")])
def test_evaluation_pads_and_never_drops(batch_size, workers, on_error, digits_split, data_dir):
    settings = {"batch_size": batch_size, "num_input_pipelines": workers, "on_error": on_error}
    share = functools.partial(helpers.evaluate, digits_split("test[:200]"), **settings)
    shares = [share(input_pipeline_id=worker) for worker in range(workers)]
    assert {len(share) for share in shares} == {-(-200 // batch_size)}
    batches = [joined(parts) for parts in zip(*shares, strict=True)]
    assert {len(batch["counted"]) for batch in batches} == {batch_size}
    found = joined(batches)
    np.testing.assert_array_equal(found["counted"], np.arange(len(found["counted"])) < 200)
    settings = {"data_dir": data_dir, "preprocess": PLAIN, "one_hot": True}
    stored = list(data.load_dataset("digits", "test[:200]", **settings))
    for key in ("image", "label"):
        np.testing.assert_array_equal(found[key][:200], [one[key].numpy() for one in stored])
        assert not found[key][200:].any()  # Blank rows are of zeros altogether.


def test_images_without_a_real_label_are_masked(tiny, resize_row):
    image = np.zeros((8, 8, 3), np.uint8)
    example = {"image": image, "original_label": 7}
    examples = [example | {"real_label": each} for each in ([3, 5], [], [7], [])]
    data_dir = tiny("imagenet2012_real", {"validation": examples})
    resize_row("imagenet2012_real", {"validation": 4})
    split = data.open("real", "test", data_dir)
    (batch,) = helpers.evaluate(split, "decode|resize(4)", batch_size=6)
    pairs = zip(batch["label"][:4], batch["counted"][:4], strict=True)
    found = sorted((*np.flatnonzero(label), mask) for label, mask in pairs)
    assert found == [(0.0,), (0.0,), (3, 5, 1.0), (7, 1.0)]
    assert (np.argmax(batch["original_label"][:4], axis=1) == 7).all()
    assert not batch["original_label"][4:].any() and batch["counted"].sum() == 2


@pytest.mark.parametrize("remote", [False, True])
def test_what_is_kept_is_neither_read_nor_decoded_again(counted, remote):
    split, reads = counted()
    dataset = helpers.train(read_by(split, remote=remote), PLAIN, cache="on", batch_size=1438)
    reads.clear()
    take(dataset, 3)  # What is on its way when the first epoch ends may be read twice.
    assert 1438 <= len(reads) < 2 * 1438
    reads.clear()
    take(dataset, 2)
    assert not reads


@pytest.fixture
def photos(tmp_path):
    helpers.write_photos(tmp_path, [f"class{number % 2}/{number}.jpg" for number in range(6)])
    return data.open(f"folder:{tmp_path}", "train")


def test_a_run_of_kept_photos_resumes_with_the_same_bits(photos):
    (photos.dataset.place / "class0/2.jpg").write_bytes(b"")
    options = {"text": "decode|inception_crop(8)", "batch_size": 4, "on_error": "skip"}
    whole = take(helpers.train(photos, **options, cache="on"), 7)
    assert_equal(take(helpers.train(photos, **options, cache="on", start_step=2), 5), whole[2:])
    options["text"] = "decode|resize(8)"
    assert_equal(*(take(helpers.train(photos, **options, cache=on), 4) for on in ("off", "on")))


def test_as_many_images_are_kept_as_fit_with_the_same_bits(counted, monkeypatch, caplog):
    split, reads = counted("train[:300]")
    whole = take(helpers.train(split, PLAIN, cache="on", batch_size=300), 2)
    kept, size = 80, 8 * 8 * 3  # of digits, which are decoded to three channels
    monkeypatch.setattr(decoded_image_cache, "free_memory", lambda: 2 * kept * size)
    with caplog.at_level("INFO", "keras_vit"):
        dataset = helpers.train(split, PLAIN, cache="auto", batch_size=300)
    assert "80 of 300 decoded images find room in memory" in caplog.text
    assert_equal(take(dataset, 2), whole)
    reads.clear()
    take(dataset, 1)
    assert {*reads} == {*range(kept, 300)}
    # Evaluations read nothing again, where what they prepare fits.
    for room, read_again in ((4 * 300 * size * 4 - 8, True), (4 * 300 * size * 4, False)):
        monkeypatch.setattr(decoded_image_cache, "free_memory", lambda room=room: room)
        settings = {"batch_size": 150, "skip_counter": SkipCounter()}
        batches = tf_data_batches.eval_dataset(split, split.preprocess(PLAIN), **settings)
        batches = decoded_image_cache.keep_prepared(batches, split)
        first = take(batches, -1)
        reads.clear()
        assert_equal(take(batches, -1), first)
        assert bool(reads) == read_again


def test_decoded_images_that_do_not_fit_are_refused(photos, tmp_path, monkeypatch):
    wanted = 6 * 12.5 * 8 * 3 / 0.75  # 6 images of 12.5 rows on average.
    monkeypatch.setattr(decoded_image_cache, "free_memory", lambda: wanted * 1.1)
    take(helpers.train(photos, cache="on"), 1)
    monkeypatch.setattr(decoded_image_cache, "free_memory", lambda: wanted * 0.9)
    with pytest.raises(UsageError, match=r"^config\.cache: the 6 decoded .* data set\.$"):
        helpers.train(photos, cache="on")
    monkeypatch.undo()  # A container has less memory than its machine.
    machine = SimpleNamespace(available=80_000)
    monkeypatch.setattr(decoded_image_cache.psutil, "virtual_memory", lambda: machine)
    monkeypatch.setattr(decoded_image_cache, "_CGROUP", tmp_path)
    assert decoded_image_cache.free_memory() == 80_000
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 1500\n")
    for limit, free in (("max", 80_000), ("9000", 5500), ("900000", 80_000)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert decoded_image_cache.free_memory() == free


def permuted(places, epochs, num_examples, seed=0):
    pairs = np.broadcast_arrays(places, epochs)
    flat, epoch = (tf.constant(each.reshape(-1), tf.int64) for each in pairs)
    result = permute(flat, epoch=epoch, num_examples=num_examples, seed=seed)
    return result.numpy().reshape(pairs[0].shape)


@pytest.mark.rows(
    (3, -1, [0, 0, 1]),
    (50, 7, [40, 32, 10]),
    (1_281_167, 0, [403_104, 705_930, 202_006]),
    (1_281_167, 2**62, [555_226, 490_694, 1_103_757]),
    (300_000_000, -1, [186_800_198, 77_351_597, 24_236_981]),
    (2**61 + 1, 7, [538127019162457995, 712800826734559455, 2068329892149937976]),
)
def test_the_order_of_a_seed_is_what_it_was(num_examples, seed, examples):
    # Computed from the definition with Python's whole numbers; every run depends on it.
    places = np.array([0, num_examples // 3, num_examples - 1])
    assert permuted(places, np.array([0, 1, 999]), num_examples, seed).tolist() == examples


def test_every_size_is_permuted():
    for num_examples in (*range(1, 70), 1000, 4095, 4096, 4097, 99_991, 300_000):
        every = np.arange(num_examples)
        orders = permuted(every, np.arange(3)[:, None], num_examples)
        np.testing.assert_array_equal(np.sort(orders), [every] * 3)
        assert num_examples < 50 or len({order.tobytes() for order in orders}) == 3


@pytest.mark.parametrize("num_examples", [1, 3, 50, 1000])
def test_a_run_is_its_epochs_and_a_worker_reads_its_slots_from_any_position(num_examples):
    # 10,000 positions are several chunks; 7 divides neither them nor the epochs.
    epochs, places = np.divmod(np.arange(10_000), num_examples)
    whole = [*enumerate(permuted(places, epochs, num_examples, seed=3).tolist())]
    starts = (0, 1, 7, 49, 70, 4093, 4096, 9100)
    for start, slots in zip(starts, cycle([range(7), [6, 0], range(3, 7)]), strict=False):
        expected = [pair for pair in whole if pair[0] >= start and pair[0] % 7 in slots]
        order = example_order(num_examples, 3, start, 7, slots).take(len(expected))
        (columns,) = take(order.batch(10_000), 1)
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
