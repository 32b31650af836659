"""The order of the examples: the permutation against its definition, and runs of its epochs."""

import math

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


def by_definition(place, epoch, num_examples, seed):
    mask = 2**64 - 1

    def mix(number):
        number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & mask
        number = (number ^ number >> 27) * 0x94D049BB133111EB & mask
        return number ^ number >> 31

    rights = math.isqrt(num_examples - 1) + 1
    lefts = -(-num_examples // rights)
    key = mix(mix(epoch + 0x9E3779B97F4A7C15 & mask) + seed & mask)
    number = place
    while True:
        left, right = divmod(number, rights)
        for turn in range(0, 16, 2):
            left = (left + mix(key ^ (turn << 32) + right)) % lefts
            right = (right + mix(key ^ (turn + 1 << 32) + left)) % rights
        number = left * rights + right
        if number < num_examples:
            return number


@pytest.mark.parametrize("num_examples", [1, 2, 3, 50, 1_281_167, 300_000_000, 2**61 + 1])
def test_is_what_its_definition_says(num_examples):
    rng = np.random.default_rng(0)
    for seed in (0, 7, -1, 2**62):
        places, epochs = rng.integers(0, num_examples, 20), rng.integers(0, 1000, 20)
        expected = [
            by_definition(int(place), int(epoch), num_examples, seed)
            for place, epoch in zip(places, epochs, strict=True)
        ]
        assert permuted(places, epochs, num_examples, seed).tolist() == expected


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
