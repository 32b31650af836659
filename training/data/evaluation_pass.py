"""The examples of a worker in the order in which they are stored, for one pass over a split."""

import tensorflow as tf

from training.data.graph import as_it_stands

# Neighbors that are read at a time, at most.
_RUN = 256


def runs(num_examples: int, batch_size: int, share: range) -> tf.data.Dataset:
    """Returns (first index, count), int64 both, of all runs of neighbors of a worker.

    Args:
        num_examples: of the split.
        batch_size: of all workers together.
        share: the worker's rows of every batch.
    """
    if len(share) == batch_size:
        batch_size, share = num_examples, range(num_examples)

    def of_batch(batch):
        end = tf.minimum(batch + share.stop, num_examples)
        firsts = tf.data.Dataset.range(batch + share.start, end, _RUN)
        return firsts.map(as_it_stands(lambda first: (first, tf.minimum(end - first, _RUN))))

    return tf.data.Dataset.range(0, num_examples, batch_size).flat_map(as_it_stands(of_batch))


def indices(num_examples: int, batch_size: int, share: range) -> tf.data.Dataset:
    """Returns the indices, int64, of the examples in `runs`."""
    return runs(num_examples, batch_size, share).flat_map(
        as_it_stands(lambda first, count: tf.data.Dataset.range(first, first + count))
    )
