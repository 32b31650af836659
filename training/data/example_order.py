"""The order of the examples: which of them stands at which position of a run.

Position g of a run lies in epoch g // N at place g % N, N being the number of examples, and every
epoch visits every example once in an order of its own, a function of (seed, epoch, place) alone.
"""

from collections.abc import Callable, Collection

import numpy as np
import tensorflow as tf

from training.data.feistel_permutation import permute
from training.data.graph import as_it_stands
from training.data.windows_of_blocks import examples_at, windows_of

_FOREVER = 2**62
# Positions that are ordered in one call: enough for TensorFlow's calls to cost nothing each.
_CHUNK = 4096


def example_order(
    num_examples: int,
    seed: int,
    start: int,
    batch_size: int,
    slots: Collection[int],
    shuffle: str = "full",
    hosts: int = 1,
) -> tf.data.Dataset:
    """Returns (position, index of the example), int64 both, of every position to be read.

    Args:
        num_examples: number of examples.
        seed: any integer.
        start: first position.
        batch_size: global batch size.
        slots: which positions within a batch are to be read, in 0..batch_size-1.
        shuffle: a name of `ORDERS`.
        hosts: that share a batch; of "blocks" only.

    Raises:
        ValueError: for another `shuffle`.
    """
    pieces = order_in_pieces(num_examples, seed, start, batch_size, slots, shuffle, hosts)
    return pieces.flat_map(as_it_stands(lambda *pair: tf.data.Dataset.from_tensor_slices(pair)))


def order_in_pieces(
    num_examples: int,
    seed: int,
    start: int,
    batch_size: int,
    slots: Collection[int],
    shuffle: str,
    hosts: int,
) -> tf.data.Dataset:
    """Returns the same as `example_order`, as vectors: of a window at a time for "blocks"."""
    if shuffle not in ORDERS:
        raise ValueError(
            f"Expected shuffle to be one of {', '.join(ORDERS)}. Received: {shuffle!r}."
        )
    order = ORDERS[shuffle](num_examples, seed, start, batch_size, sorted(slots), hosts)
    return order.prefetch(1)


def _permuted(num_examples, seed, start, batch_size, slots, hosts):
    """Orders the positions of some steps at a time, wherever epochs end among them."""
    steps = max(1, _CHUNK // len(slots))
    offsets = (np.arange(steps)[:, None] * batch_size + slots).reshape(-1)

    def of_chunk(first):
        positions = first + tf.constant(offsets, tf.int64)
        positions = tf.boolean_mask(positions, positions >= start)
        places, epoch = positions % num_examples, positions // num_examples
        return positions, permute(places, epoch=epoch, num_examples=num_examples, seed=seed)

    first = start // batch_size * batch_size
    firsts = tf.data.Dataset.range(first, _FOREVER, steps * batch_size)
    return firsts.map(as_it_stands(of_chunk), num_parallel_calls=1)


def _sorted(num_examples, seed, start, batch_size, slots, hosts):
    """Orders an epoch at a time, in memory for several numbers per example."""
    wanted = tf.constant([slot in slots for slot in range(batch_size)])

    def of_epoch(epoch):
        positions = epoch * num_examples + tf.range(num_examples, dtype=tf.int64)
        keys = tf.random.stateless_uniform(
            (num_examples,),
            tf.stack([tf.constant(seed, tf.int64), epoch]),
            minval=None,
            maxval=None,
            dtype=tf.int64,
        )
        indices = tf.cast(tf.argsort(keys, stable=True), tf.int64)
        kept = (positions >= start) & tf.gather(wanted, positions % batch_size)
        return tf.boolean_mask(positions, kept), tf.boolean_mask(indices, kept)

    epochs = tf.data.Dataset.range(start // num_examples, _FOREVER)
    return epochs.map(as_it_stands(of_epoch), num_parallel_calls=1)


def _blocked(num_examples, seed, start, batch_size, slots, hosts):
    """Orders the positions of a window at a time."""
    windows = windows_of(num_examples, batch_size, hosts)
    per_epoch = -(-num_examples // windows.size)
    wanted = tf.constant([slot in slots for slot in range(batch_size)])

    def of_window(number):
        begin = number % per_epoch * windows.size
        end = tf.minimum(begin + windows.size, num_examples)
        positions = number // per_epoch * num_examples + tf.range(begin, end)
        kept = (positions >= start) & tf.gather(wanted, positions % batch_size)
        positions = tf.boolean_mask(positions, kept)
        return positions, examples_at(
            positions, num_examples=num_examples, seed=seed, windows=windows
        )

    first = start // num_examples * per_epoch + start % num_examples // windows.size
    numbers = tf.data.Dataset.range(first, _FOREVER)
    return numbers.map(as_it_stands(of_window), num_parallel_calls=1)


# "full" permutes an epoch in memory that does not grow with it; "blocks" is for storage that is
# read in large pieces, see `training.data.windows_of_blocks`. "sorted", by random numbers, is how
# runs were ordered before there was a choice, and how they are when they resume.
ORDERS: dict[str, Callable[..., tf.data.Dataset]] = {
    "full": _permuted,
    "blocks": _blocked,
    "sorted": _sorted,
}
