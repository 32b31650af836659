import numpy as np
import tensorflow as tf

from training.data.order import example_order, examples_at


def epoch_order(epoch, seed=3, num_examples=50):
    places = tf.range(num_examples, dtype=tf.int64)
    epoch = tf.constant(epoch, tf.int64)
    return examples_at(places, epoch=epoch, num_examples=num_examples, seed=seed).numpy()


def test_an_epoch_is_a_permutation_of_its_seed_and_number():
    orders = [epoch_order(0), epoch_order(1), epoch_order(0, seed=4)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(50))
    assert len({order.tobytes() for order in orders}) == 3
    np.testing.assert_array_equal(epoch_order(1), orders[1])


def test_positions_run_through_the_epochs_from_any_start_and_in_any_share():
    run = np.concatenate([epoch_order(epoch) for epoch in range(4)])
    every = example_order(50, 3, 70, 8, range(8)).take(90)
    assert [(int(g), int(index)) for g, index in every] == [(g, run[g]) for g in range(70, 160)]
    share = example_order(50, 3, 72, 8, [2, 3]).take(20)
    expected = [(g, run[g]) for g in range(72, 200) if g % 8 in (2, 3)][:20]
    assert [(int(g), int(index)) for g, index in share] == expected
