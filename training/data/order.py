"""The order of the examples: which of them stands at which position of a run.

Position g of a run lies in epoch g // N at place g % N, N being the number of examples, and every
epoch visits every example once in an order of its own. `examples_at` is that order, a function
of (seed, epoch, place) alone; whatever replaces it must be a permutation of the places, too.
"""

from collections.abc import Collection

import tensorflow as tf

_FOREVER = 2**62


def examples_at(places: tf.Tensor, *, epoch: tf.Tensor, num_examples: int, seed: int) -> tf.Tensor:
    """Returns the indices of the examples at `places` of an epoch, int64 (n,).

    The permutation sorts random numbers, which any TensorFlow computes alike. It takes memory
    for three numbers per example.

    Args:
        places: places in the epoch, int64 (n,) in 0..num_examples-1.
        epoch: the epoch, int64 scalar.
        num_examples: number of examples.
        seed: any integer.
    """
    keys = tf.random.stateless_uniform(
        (num_examples,),
        tf.stack([tf.constant(seed, tf.int64), epoch]),
        minval=None,
        maxval=None,
        dtype=tf.int64,
    )
    return tf.gather(tf.cast(tf.argsort(keys, stable=True), tf.int64), places)


def example_order(
    num_examples: int, seed: int, start: int, batch_size: int, slots: Collection[int]
) -> tf.data.Dataset:
    """Returns (position, index of the example), int64 both, of every position to be read.

    Args:
        num_examples: number of examples.
        seed: any integer.
        start: first position.
        batch_size: global batch size.
        slots: which positions within a batch are to be read, in 0..batch_size-1.
    """
    wanted = tf.constant([slot in slots for slot in range(batch_size)])

    def of_epoch(epoch):
        places = tf.range(num_examples, dtype=tf.int64)
        positions = epoch * num_examples + places
        kept = (positions >= start) & tf.gather(wanted, positions % batch_size)
        indices = examples_at(
            tf.boolean_mask(places, kept), epoch=epoch, num_examples=num_examples, seed=seed
        )
        return tf.boolean_mask(positions, kept), indices

    convert = tf.autograph.experimental.do_not_convert
    epochs = tf.data.Dataset.range(start // num_examples, _FOREVER)
    epochs = epochs.map(convert(of_epoch), num_parallel_calls=1).prefetch(1)
    return epochs.flat_map(convert(lambda *pair: tf.data.Dataset.from_tensor_slices(pair)))
