"""Random access to ArrayRecord files, TFDS's own format for it: each brings its index."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from training.data.record_ranges import RecordRanges
from training.errors import UsageError
from training.io.local_path import is_remote

# For single records rather than a file from end to end.
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


def reader(
    ranges: RecordRanges,
) -> tuple[Callable[[tf.Tensor], tf.Tensor], Callable[[tf.Tensor, int], tf.Tensor]]:
    """Returns how ArrayRecord files are read: `record` and `records` of `random_access.Source`.

    Raises:
        UsageError: if the files are remote, or ArrayRecord is not installed.
        ValueError: if a file is cut short or holds another number of records.
    """
    if any(map(is_remote, ranges.files)):
        raise UsageError(
            f"Expected ArrayRecord files of this machine. Received: {ranges.files[0]}. Mount the "
            "bucket, or prepare the data set as TFRecord files."
        )
    opened: dict[int, Any] = {}
    lock = threading.Lock()

    def open_file(number):
        with lock:
            if number not in opened:
                opened[number] = _open(ranges.files[number], ranges.lengths[number])
            return opened[number]

    def read(number, first, stop):
        return np.array(open_file(int(number)).read(int(first), int(stop)), dtype=object)

    def run(begin, end):
        file, first = ranges.place(begin)
        found = tf.numpy_function(read, [file, first, first + end - begin], tf.string)
        return tf.ensure_shape(found, [None])

    def record(index):
        return run(index, index + 1)[0]

    def records(first, count):
        _, begins, ends = ranges.runs(first, count)
        runs = tf.data.Dataset.from_tensor_slices((begins, ends))
        found = runs.flat_map(lambda *ends: tf.data.Dataset.from_tensor_slices(run(*ends)))
        return found.batch(count).get_single_element()

    if ranges.files:
        open_file(0)
    return record, records


@functools.cache
def _module() -> Any:
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        raise UsageError(
            "ArrayRecord files need the package array-record, which is made for Linux: pip install "
            "array-record, or prepare the data set as TFRecord files."
        ) from error
    return array_record_module


def _open(path: str, length: int) -> Any:
    found = _module().ArrayRecordReader(path, options=_OPTIONS)
    if not found.ok() or found.num_records() != length:
        raise ValueError(
            f"Expected {length} records in {path}. Found {found.num_records()}. The copy is "
            "damaged: prepare the data set again."
        )
    return found
