"""The records that a split takes of its files, numbered through."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from training.data.splits import Range


class RecordRanges:
    """Neighboring records of each of some files.

    Args:
        files: paths.
        lengths: number of records that each file holds.
        skips: records of each file before those that are taken.
        counts: records that are taken of each.
    """

    def __init__(
        self,
        files: Sequence[str],
        lengths: Sequence[int],
        skips: Sequence[int],
        counts: Sequence[int],
    ):
        self.files, self.lengths, self.skips, self.counts = files, lengths, skips, counts
        self._names = [os.path.basename(file) for file in files]
        self._firsts = np.cumsum([0, *counts])
        self._first_of = tf.constant(self._firsts, tf.int64)
        self._skip_of = tf.constant(skips, tf.int64)
        self._name_of = tf.constant(self._names, tf.string)

    def __len__(self):
        return int(self._firsts[-1])

    def place(self, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the numbers of the file that holds a record, and of the record in it."""
        file = tf.searchsorted(self._first_of, index[None], side="right", out_type=tf.int64)[0] - 1
        return file, index - tf.gather(self._first_of, file) + tf.gather(self._skip_of, file)

    def runs(self, first: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the numbers of the files that hold `count` records from `first` on, int64 (n,).

        And, for each of them, the first of these records, and the one after the last.
        """
        files = tf.range(self.place(first)[0], self.place(first + count - 1)[0] + 1)
        begins = tf.maximum(tf.gather(self._first_of, files), first)
        return files, begins, tf.minimum(tf.gather(self._first_of, files + 1), first + count)

    def id_of(self, index: tf.Tensor) -> tf.Tensor:
        """Returns the id of an example, string, as TFDS's `add_tfds_id` writes it."""
        file, number = self.place(index)
        parts = [tf.gather(self._name_of, file), tf.strings.as_string(number)]
        return tf.strings.join(parts, "__")

    def example_id(self, index: int) -> str:
        """Returns the same in Python."""
        file = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return f"{self._names[file]}__{index - self._firsts[file] + self.skips[file]}"


def record_ranges(info: Any, ranges: Sequence[Range]) -> RecordRanges:
    """Returns the records of ranges of native splits.

    Args:
        info: `info` of the TFDS builder.
        ranges: one after the other.
    """
    rows: list[tuple[Any, ...]] = []
    for part in ranges:
        split = info.splits[part.split]
        instructions = info.splits[f"{part.split}[{part.start}:{part.stop}]"].file_instructions
        wanted = {str(item.filename): item for item in instructions}
        for file, length in zip(map(str, split.filepaths), split.shard_lengths, strict=True):
            if file in wanted:
                skip, take = wanted[file].skip, wanted[file].take
                rows.append((file, length, skip, take if take >= 0 else length - skip))
    files, lengths, skips, counts = ([row[k] for row in rows] for k in range(4))
    return RecordRanges(files, lengths, skips, counts)
