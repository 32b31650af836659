"""The order of the examples: the permutation, and runs of its epochs."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training.data.order import example_order, permute


def permuted(places, epochs, num_examples, seed=0):
    places, epochs = np.broadcast_arrays(places, epochs)
    result = permute(
        tf.constant(places.reshape(-1), tf.int64),
        epoch=tf.constant(epochs.reshape(-1), tf.int64),
        num_examples=num_examples,
        seed=seed,
    )
    return result.numpy().reshape(places.shape)


def epochs_of(num_examples, count, seed=0):
    return permuted(np.arange(num_examples), np.arange(count)[:, None], num_examples, seed)


@pytest.mark.parametrize(
    ("num_examples", "seed", "examples"),
    [
        (3, -1, [0, 0, 1]),
        (50, 7, [40, 32, 10]),
        (1_281_167, 0, [403_104, 705_930, 202_006]),
        (1_281_167, 2**62, [555_226, 490_694, 1_103_757]),
        (300_000_000, -1, [186_800_198, 77_351_597, 24_236_981]),
        (2**61 + 1, 7, [538127019162457995, 712800826734559455, 2068329892149937976]),
    ],
)
def test_the_order_of_a_seed_is_what_it_was(num_examples, seed, examples):
    # Computed from the definition with Python's whole numbers; every run depends on it.
    places = np.array([0, num_examples // 3, num_examples - 1])
    assert permuted(places, np.array([0, 1, 999]), num_examples, seed).tolist() == examples


def test_every_size_is_permuted():
    for num_examples in (*range(1, 70), 1000, 4095, 4096, 4097, 99_991, 300_000):
        orders = epochs_of(num_examples, 3)
        for order in orders:
            np.testing.assert_array_equal(np.sort(order), np.arange(num_examples))
        assert num_examples < 50 or len({order.tobytes() for order in orders}) == 3


def run(num_examples, count, seed=3, start=0, batch_size=8, slots=None):
    """Returns (position, index) of the first positions that a worker reads."""
    slots = range(batch_size) if slots is None else slots
    order = example_order(num_examples, seed, start, batch_size, slots).take(count)
    (columns,) = order.batch(count).as_numpy_iterator()
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("num_examples", [1, 3, 50, 1000])
def test_a_run_is_its_epochs_one_after_the_other(num_examples):
    # 10,000 positions are several chunks; 7 divides neither them nor the epochs.
    whole = run(num_examples, 10_000, batch_size=7)
    epochs = epochs_of(num_examples, -(-10_000 // num_examples), seed=3).reshape(-1)
    assert whole == list(enumerate(epochs[:10_000].tolist()))


@pytest.mark.parametrize("slots", [range(8), [7, 0], range(4, 8)])
def test_a_worker_reads_its_slots_of_each_batch_from_any_position(slots):
    whole = [pair for pair in run(50, 9300) if pair[0] % 8 in slots]
    for start in (1, 8, 49, 70, 4093, 4096, 9100):
        expected = [pair for pair in whole if pair[0] >= start][:100]
        assert run(50, len(expected), start=start, slots=slots) == expected
