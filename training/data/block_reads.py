"""Reading for a blocked order: whole blocks of neighboring records, a window ahead of its use."""

import tensorflow as tf

from training.data.graph import as_it_stands
from training.data.random_access import Source
from training.data.windows_of_blocks import BLOCK

# A block is read whole if so many of its records are wanted.
_WORTH = BLOCK // 4
PARALLEL = 64
# In place of the record of an example that is to be read alone; no record is empty.
ALONE = ""


def with_records(pieces: tf.data.Dataset, source: Source) -> tf.data.Dataset:
    """Returns (position, index, record) of pieces of an order, their records read in blocks.

    A window is read while the one before it is in use, so that two are in memory. Of a block that
    is not worth reading whole, or cannot be, the records are `ALONE`.

    Args:
        pieces: (positions, indices) of a window each, int64 (n,) both.
        source: with `records`.
    """
    records_of = source.records
    assert records_of is not None
    blocks = source.num_examples // BLOCK

    def block(number):
        one = tf.data.Dataset.from_tensors(number * BLOCK)
        read = one.map(as_it_stands(lambda first: records_of(first, BLOCK))).ignore_errors()
        unread = tf.data.Dataset.from_tensors(tf.fill([BLOCK], ALONE))
        return read.concatenate(unread).take(1).get_single_element()

    def load(positions, indices):
        found, place, counts = tf.unique_with_counts(indices // BLOCK, out_idx=tf.int64)
        whole = (counts >= _WORTH) & (found < blocks)
        rows = tf.cumsum(tf.cast(whole, tf.int64)) * BLOCK
        wanted = tf.data.Dataset.from_tensor_slices(tf.boolean_mask(found, whole))
        read = wanted.map(as_it_stands(block), num_parallel_calls=PARALLEL)
        # The first block stands for all records that are read alone, and fills the batch.
        read = tf.data.Dataset.from_tensors(tf.fill([BLOCK], ALONE)).concatenate(read)
        records = read.batch(tf.size(found, tf.int64) + 1).get_single_element()
        row = tf.where(tf.gather(whole, place), tf.gather(rows, place) + indices % BLOCK, 0)
        return positions, indices, row, tf.reshape(records, [-1])

    def examples(positions, indices, rows, records):
        places = tf.data.Dataset.from_tensor_slices((positions, indices, rows))
        return places.map(
            as_it_stands(lambda position, index, row: (position, index, records[row]))
        )

    windows = pieces.map(as_it_stands(load), num_parallel_calls=1)
    return windows.flat_map(as_it_stands(examples))
