"""The blocked order: a permutation, of whole blocks for each host, that begins anywhere."""

import numpy as np
import pytest
import tensorflow as tf
from training.data.skip_counter import SkipCounter
from training.data.windows_of_blocks import BLOCK, examples_at, windows_of

from training.data import block_reads, pipeline, tfrecords, windows_of_blocks


def order(num_examples, batch_size, hosts, epoch=0, seed=5):
    positions = np.arange(epoch * num_examples, (epoch + 1) * num_examples)
    windows = windows_of(num_examples, batch_size, hosts)
    found = examples_at(
        tf.constant(positions), num_examples=num_examples, seed=seed, windows=windows
    )
    return found.numpy(), windows, positions % batch_size // (batch_size // hosts)


FIRST = [2816, 1102, 8592, 5312, 6141, 114]
SETS = [
    (1, 8, 1),
    (10, 8, 2),
    (16, 8, 1),
    (1438, 32, 1),
    (10_000, 32, 4),
    (50_000, 96, 2),
    (50_001, 1000, 8),
    (300_000, 4096, 8),
]


@pytest.mark.parametrize(("num_examples", "batch_size", "hosts"), SETS)
def test_an_epoch_is_a_permutation(num_examples, batch_size, hosts):
    first = order(num_examples, batch_size, hosts)[0]
    third = order(num_examples, batch_size, hosts, epoch=3)[0]
    other = order(num_examples, batch_size, hosts, seed=6)[0]
    for each in (first, third, other):
        np.testing.assert_array_equal(np.sort(each), np.arange(num_examples))
    if num_examples > 10:
        assert not np.array_equal(first, third) and not np.array_equal(first, other)


@pytest.mark.parametrize(("num_examples", "batch_size", "hosts"), SETS[3:])
@pytest.mark.parametrize("epoch", [0, 3])
def test_a_host_has_blocks_of_its_own(num_examples, batch_size, hosts, epoch):
    found, windows, host = order(num_examples, batch_size, hosts, epoch)
    begin = 0
    for part in [windows.part] * windows.whole + [windows.last_part]:
        assert part % BLOCK == 0 and (hosts == 1 or part * hosts % batch_size == 0)
        window, of_host = (each[begin:][: part * hosts] for each in (found, host))
        for number in range(hosts):
            blocks, counts = np.unique(window[of_host == number] // BLOCK, return_counts=True)
            assert len(blocks) == part // BLOCK
            assert (counts == BLOCK).all()
        begin += part * hosts
    # What is left is no window of whole blocks and whole batches.
    assert num_examples - begin < np.lcm(batch_size // hosts, BLOCK) * hosts


def test_neighbors_are_spread_over_their_window():
    found, windows, _ = order(300_000, 4096, 8)
    whole = found[: windows.size * windows.whole].reshape(-1, 4096 // 8)
    # Two examples that follow each other are of the same block as often as any two of the part.
    same = (whole[:, 1:] // BLOCK == whole[:, :-1] // BLOCK).mean()
    assert same == pytest.approx((BLOCK - 1) / (windows.part - 1), rel=0.1)


def test_the_order_stays_what_it_is():
    # Every run that resumes depends on it.
    found, _, _ = order(10_000, 32, 4, epoch=1)
    assert found[:6].tolist() == FIRST


@pytest.fixture
def batches(digits_dir, monkeypatch):
    # Ten windows of eight blocks, one of five, and six examples are an epoch.
    monkeypatch.setattr(windows_of_blocks, "_WINDOW", 128)

    def take(count, **changes):
        dataset = pipeline.train_dataset(
            name="digits",
            split="train[:95%]",
            preprocess="decode|resize(8)|value_range(-1,1)",
            batch_size=32,
            seed=5,
            shuffle="blocks",
            **{"data_dir": digits_dir} | changes,
        )
        return [{key: value.numpy() for key, value in one.items()} for one in dataset.take(count)]

    return take


def assert_equal(first, second):
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        for key in one:
            np.testing.assert_array_equal(one[key], two[key])


@pytest.mark.parametrize(("start_step", "mixup_p"), [(0, 0.3), (7, 0.0), (50, 0.3)])
def test_blocks_give_what_single_reads_give(batches, monkeypatch, start_step, mixup_p):
    options = {"start_step": start_step, "mixup_p": mixup_p, "num_input_pipelines": 2}
    read_together = batches(40, **options)
    monkeypatch.setattr(block_reads, "_WORTH", BLOCK + 1)
    assert_equal(read_together, batches(40, **options))


@pytest.mark.long
def test_any_step_continues_the_run(batches):
    whole = batches(60)
    for step in (1, 33, 55):
        assert_equal(batches(60 - step, start_step=step), whole[step:])


def test_hosts_share_an_epoch(batches):
    # 1366 images are 42 batches and 22 images.
    shares = [batches(42, num_input_pipelines=2, input_pipeline_id=host) for host in range(2)]
    images = {image.tobytes() for share in shares for one in share for image in one["image"]}
    # Two digits are the same picture.
    assert len(images) >= 42 * 32 - 4


def test_a_window_takes_a_request_a_block(batches, monkeypatch):
    runs, singles = [], []
    read_runs, read_record = tfrecords.read_runs, tfrecords.read_record

    def noted_runs(paths, *rest):
        with tf.control_dependencies([tf.numpy_function(runs.append, [paths], [])]):
            return read_runs(tf.identity(paths), *rest)

    def noted_record(path, offset):
        with tf.control_dependencies([tf.numpy_function(singles.append, [path], [])]):
            return read_record(tf.identity(path), offset)

    monkeypatch.setattr(tfrecords, "read_runs", noted_runs)
    monkeypatch.setattr(tfrecords, "read_record", noted_record)
    monkeypatch.setattr(windows_of_blocks, "_WINDOW", 8192)
    batches(1)
    # 1366 examples are 85 blocks and 6 more; the next epoch is read ahead.
    assert 85 <= len(runs) <= 3 * 85
    assert len(singles) <= 3 * 6


@pytest.mark.long
def test_a_damaged_record_costs_its_block_nothing(batches, damaged_digits):
    whole = batches(42)
    with pytest.raises(tf.errors.DataLossError):
        batches(42, data_dir=damaged_digits)
    counter = SkipCounter()
    skipping = batches(42, data_dir=damaged_digits, on_error="skip", skip_counter=counter)
    assert set(counter.examples) == {"sklearn_digits-train.tfrecord-00000-of-00001__700"}
    differing = [
        (one["image"] != two["image"]).any(axis=(1, 2, 3)).sum()
        for one, two in zip(whole, skipping, strict=True)
    ]
    assert sum(differing) == 1


def test_records_of_several_files(tmp_path):
    paths, offsets = [], []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for record in range(4):
                writer.write(f"{number}{record}" * 1000)
        offsets.append(tfrecords.offsets([paths[-1]], [4])[0])
    found = tfrecords.read_runs(
        tf.constant(paths),
        tf.constant([offsets[0][2], offsets[1][0], offsets[2][0]], tf.int64),
        tf.constant([offsets[0][3], offsets[1][3], offsets[2][0]], tf.int64),
        tf.constant([2, 4, 1], tf.int64),
        7,
    )
    assert [one[:2].decode() for one in found.numpy()] == ["02", "03", "10", "11", "12", "13", "20"]
