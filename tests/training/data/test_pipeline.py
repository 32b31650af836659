import numpy as np
import pytest
import tensorflow as tf

from training.data import load_dataset, pipeline, tfrecords
from training.data.example_order import ORDERS
from training.data.preprocessing.operation import parse

RANDOM = "decode|resize(12)|random_crop(10)|flip_lr|value_range(-1,1)"
PLAIN = "decode|resize((8, 8))|value_range(0,255)"


def long(*values):
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.fixture
def train(digits_dir):
    def make(**changes):
        arguments = {
            "name": "digits",
            "split": "train[:100]",
            "preprocess": RANDOM,
            "batch_size": 32,
            "seed": 5,
            "data_dir": digits_dir,
        }
        return pipeline.train_dataset(**{**arguments, **changes})

    return make


def take(dataset, count):
    return [{k: v.numpy() for k, v in one.items()} for one in dataset.take(count)]


def assert_equal(first, second):
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        for key in one:
            np.testing.assert_array_equal(one[key], two[key])


def test_elements_have_static_shapes(train):
    spec = train().element_spec
    assert spec["image"] == tf.TensorSpec((32, 10, 10, 3), tf.float32)
    assert spec["label"] == tf.TensorSpec((32, 10), tf.float32)


def test_every_epoch_is_a_permutation_of_its_own(train):
    # 100 examples, batches of 20: five steps are an epoch.
    batches = take(train(preprocess=PLAIN, batch_size=20), 15)
    epochs = [
        [image.tobytes() for batch in batches[k : k + 5] for image in batch["image"]]
        for k in (0, 5, 10)
    ]
    assert len(set(epochs[0])) == 100
    assert set(epochs[0]) == set(epochs[1]) == set(epochs[2])
    assert epochs[0] != epochs[1] != epochs[2]


def test_epochs_end_inside_batches(train):
    images = np.concatenate([b["image"] for b in take(train(preprocess=PLAIN), 25)])
    assert len(images) == 800
    counts = np.unique([image.tobytes() for image in images], return_counts=True)[1]
    assert counts.tolist() == [8] * 100


def test_images_keep_their_labels(train, digits_dir):
    stored = load_dataset.load_dataset(
        "digits", "train[:100]", data_dir=digits_dir, preprocess=PLAIN, one_hot=True
    )
    labels = {one["image"].numpy().tobytes(): one["label"].numpy() for one in stored}
    for batch in take(train(preprocess=PLAIN), 4):
        for image, label in zip(batch["image"], batch["label"], strict=True):
            np.testing.assert_array_equal(labels[image.tobytes()], label)


@pytest.mark.parametrize("shuffle", sorted(ORDERS))
@pytest.mark.parametrize(
    ("start_step", "mixup_p"), [(1, 0.3), (10, 0.0), long(1, 0.0), long(10, 0.3)]
)
def test_starting_at_a_step_continues_the_run(train, start_step, mixup_p, shuffle):
    options = {"mixup_p": mixup_p, "shuffle": shuffle}
    whole = take(train(**options), start_step + 3)
    assert_equal(take(train(**options, start_step=start_step), 3), whole[start_step:])


@pytest.fixture
def reads(monkeypatch):
    """The (file, offset) of every record that is read, in order."""
    found = []
    read_record = tfrecords.read_record

    def note(path, offset):
        found.append((path, int(offset)))
        return offset

    def counted(path, offset):
        offset = tf.ensure_shape(tf.numpy_function(note, [path, offset], tf.int64), [])
        return read_record(path, offset)

    monkeypatch.setattr(tfrecords, "read_record", counted)
    return found


@pytest.fixture
def no_read_ahead(monkeypatch):
    """Makes the pipeline read nothing before it is asked for, so that reads can be counted."""

    def one_by_one(dataset, function, parallel=None):
        return dataset.map(tf.autograph.experimental.do_not_convert(function))

    def without_prefetch(dataset):
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        return dataset.with_options(options)

    monkeypatch.setattr(pipeline, "_map", one_by_one)
    monkeypatch.setattr(pipeline, "_finish", without_prefetch)


@pytest.mark.parametrize(("workers", "mixup_p", "share"), [(1, 0.0, 32), (4, 0.0, 8), (4, 0.3, 9)])
@pytest.mark.parametrize("start_step", [0, 30, 10_000])
def test_any_step_reads_as_little_as_the_first(
    train, reads, no_read_ahead, start_step, workers, mixup_p, share
):
    dataset = train(
        split="train", start_step=start_step, num_input_pipelines=workers, mixup_p=mixup_p
    )
    reads.clear()
    take(dataset, 3)
    assert len(reads) == 3 * share


def test_what_is_skipped_is_never_read(train, reads, no_read_ahead):
    # Thirty steps of 32 images are two thirds of the first epoch of 1438.
    take(train(split="train", preprocess=PLAIN), 30)
    skipped = set(reads)
    assert len(skipped) == 960
    reads.clear()
    take(train(split="train", preprocess=PLAIN, start_step=30), 3)
    assert len(reads) == 96
    assert skipped.isdisjoint(reads)


def test_reading_ahead_begins_at_the_step(train, reads):
    take(train(split="train", preprocess=PLAIN, start_step=10_000), 2)
    assert 64 <= len(reads) < 1438


@pytest.mark.parametrize("shuffle", ["full", "sorted"])
@pytest.mark.parametrize(("workers", "mixup_p"), [(2, 0.0), (8, 0.3), long(2, 0.3), long(8, 0.0)])
def test_shares_of_any_number_of_workers_make_up_the_batch(train, workers, mixup_p, shuffle):
    whole = take(train(mixup_p=mixup_p, start_step=2, shuffle=shuffle), 3)
    shares = [
        take(
            train(
                mixup_p=mixup_p,
                start_step=2,
                shuffle=shuffle,
                num_input_pipelines=workers,
                input_pipeline_id=worker,
            ),
            3,
        )
        for worker in range(workers)
    ]
    joined = [
        {key: np.concatenate([share[k][key] for share in shares]) for key in ("image", "label")}
        for k in range(3)
    ]
    assert_equal(joined, whole)


def test_seeds_and_only_seeds_change_the_data(train):
    assert_equal(take(train(), 3), take(train(), 3))
    other = take(train(seed=6), 3)
    assert not np.array_equal(take(train(), 3)[0]["image"], other[0]["image"])


def test_an_example_is_augmented_anew_in_every_epoch(train):
    images = np.concatenate([batch["image"] for batch in take(train(split="train[:1]"), 1)])
    assert len({image.tobytes() for image in images}) > 10


def test_mixup_blends_with_the_image_before(train):
    plain = take(train(preprocess=PLAIN), 2)
    mixed = take(train(preprocess=PLAIN, mixup_p=0.5), 2)
    weights = []
    for one, two in zip(plain, mixed, strict=True):
        label, partner = one["label"], np.roll(one["label"], 1, axis=0)
        differing = np.flatnonzero((label != partner).any(axis=1))
        weight = two["label"][differing[0]] @ label[differing[0]]
        weights.append(weight)
        np.testing.assert_allclose(two["label"], weight * label + (1 - weight) * partner, atol=1e-6)
        images = weight * one["image"] + (1 - weight) * np.roll(one["image"], 1, axis=0)
        np.testing.assert_allclose(two["image"], images, atol=1e-3)
    draw, one, zero = parse("mixup(0.5)")[0].apply, {"label": 1}, {"label": 0}
    drawn = [draw(one, zero, (~5, step))["label"] for step in (0, 1)]
    np.testing.assert_allclose(weights, drawn, atol=1e-6)
    assert weights[0] != weights[1]
    assert_equal(take(train(preprocess=f"{PLAIN}|mixup(0.5)"), 2), mixed)


def test_large_hosts_fill_several_batches_at_once(train, monkeypatch):
    one = take(train(mixup_p=0.3), 7)
    monkeypatch.setattr(pipeline.os, "cpu_count", lambda: 64)
    assert pipeline.batches_at_once(64) == 4
    assert_equal(take(train(mixup_p=0.3), 7), one)


def test_num_classes_widens_the_labels(train):
    assert train(num_classes=21).element_spec["label"].shape == (32, 21)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 30, "num_input_pipelines": 4}, "multiple of num_input_pipelines"),
        ({"num_input_pipelines": 2, "input_pipeline_id": 2}, "input_pipeline_id"),
        ({"on_error": "ignore"}, "one of"),
        ({"shuffle": "halves"}, "one of full, blocks, sorted"),
        ({"preprocess": "decode|value_range"}, "add a resize or a crop"),
        ({"name": "diggits"}, "Unknown data set"),
        ({"split": "train[:9999]"}, "beyond the 1438 examples"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(train, changes, message):
    with pytest.raises(ValueError, match=message):
        train(**changes)


@pytest.mark.parametrize(
    ("batch_size", "workers"),
    [(64, 1), (200, 4), (400, 1), long(64, 4), long(200, 1), long(400, 4)],
)
def test_evaluation_pads_and_never_drops(digits_dir, batch_size, workers):
    shares = [
        list(
            pipeline.eval_dataset(
                name="digits",
                split="test[:200]",
                preprocess=PLAIN,
                batch_size=batch_size,
                data_dir=digits_dir,
                num_input_pipelines=workers,
                input_pipeline_id=worker,
            )
        )
        for worker in range(workers)
    ]
    assert {len(share) for share in shares} == {-(-200 // batch_size)}
    batches = [
        {key: np.concatenate([share[k][key] for share in shares]) for key in shares[0][k]}
        for k in range(len(shares[0]))
    ]
    assert {len(batch["mask"]) for batch in batches} == {batch_size}
    masks = np.concatenate([batch["mask"] for batch in batches])
    np.testing.assert_array_equal(masks, [1.0] * 200 + [0.0] * (len(masks) - 200))
    images = np.concatenate([batch["image"] for batch in batches])
    assert not images[masks == 0].any()
    stored = load_dataset.load_dataset(
        "digits", "test[:200]", data_dir=digits_dir, preprocess=PLAIN
    )
    expected = [one["image"].numpy() for one in stored]
    np.testing.assert_array_equal(images[masks == 1], expected)


def test_evaluation_refuses_mixup(digits_dir):
    with pytest.raises(ValueError, match="no mixup in evaluation"):
        pipeline.eval_dataset(
            name="digits",
            split="test",
            preprocess=f"{PLAIN}|mixup(0.2)",
            batch_size=8,
            data_dir=digits_dir,
        )


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
    (batch,) = pipeline.eval_dataset(
        name="real", split="test", preprocess="decode|resize(4)", batch_size=6, data_dir=data_dir
    )
    found = {
        tuple(np.flatnonzero(label)): (mask, np.flatnonzero(original).tolist())
        for label, mask, original in zip(
            batch["label"].numpy(),
            batch["mask"].numpy(),
            batch["original_label"].numpy(),
            strict=True,
        )
        if original.any()
    }
    assert found == {(3, 5): (1.0, [7]), (7,): (1.0, [7]), (): (0.0, [7])}
    assert batch["mask"].numpy().sum() == 2


def test_a_pipeline_feeds_a_mirrored_strategy(train):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    distributed = strategy.experimental_distribute_dataset(train())
    assert_equal(take(train(), 1), [{k: v.numpy() for k, v in next(iter(distributed)).items()}])


@pytest.mark.long
@pytest.mark.parametrize("start_step", [0, 10**9])
def test_three_hundred_million_examples_take_no_table(launch, start_step):
    process = launch("-m", "benchmarks", "first_batch", f"--step={start_step}")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    (row,) = (line for line in output.splitlines() if line.startswith("| full "))
    examples, step, seconds, gigabytes = map(float, row.split("|")[2:-1])
    assert (examples, step) == (300_000_000, start_step)
    assert seconds < 10
    assert gigabytes < 1
