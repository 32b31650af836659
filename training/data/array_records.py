"""Random access to ArrayRecord files, TFDS's own format for it: each brings its index."""

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from training.data.record_ranges import RecordRanges
from training.errors import UsageError, first_line
from training.io.paths import is_remote

# For single records rather than a file from end to end.
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
# A store is asked once for neighbors, which otherwise are a request each.
_OPTIONS_IN_STORE = "readahead_buffer_size:2M,max_parallelism:1"


def reader(
    ranges: RecordRanges,
) -> tuple[Callable[[tf.Tensor], tf.Tensor], Callable[[tf.Tensor, int], tf.Tensor]]:
    """Returns how ArrayRecord files are read: `record` and `records` of `random_access.Source`.

    Raises:
        UsageError: if the files are in a store but gs://, or ArrayRecord is not installed.
        ValueError: if a file cannot be read, is cut short or holds another number of records.
    """
    elsewhere = [path for path in ranges.files if is_remote(path) and not path.startswith("gs://")]
    if elsewhere:
        raise UsageError(
            f"Expected ArrayRecord files of this machine or of gs://. Received: {elsewhere[0]}. "
            "Copy or mount them, or prepare the data set as TFRecord files, for which there is: "
            "python -m training data index"
        )
    opened: dict[int, tuple[Any, contextlib.AbstractContextManager]] = {}
    lock = threading.Lock()

    def open_file(number):
        with lock:
            if number not in opened:
                path = ranges.files[number]
                # Of a store, a reader gives several threads wrong bytes.
                alone = threading.Lock() if is_remote(path) else contextlib.nullcontext()
                opened[number] = _open(path, ranges.lengths[number]), alone
            return opened[number]

    def read(number, first, stop):
        found, alone = open_file(int(number))
        with alone:
            return np.array(found.read(int(first), int(stop)), dtype=object)

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
    options = _OPTIONS_IN_STORE if is_remote(path) else _OPTIONS
    found = _module().ArrayRecordReader(path, options=options)
    if not found.ok():
        raise ValueError(f"{path} cannot be read: {_failure(found)}. {_what_to_do(path)}")
    if found.num_records() != length:
        raise ValueError(
            f"Expected {length} records in {path}. Found {found.num_records()}. The copy is "
            "damaged: prepare the data set again."
        )
    return found


def _failure(reader: Any) -> str:
    try:
        reader.close()
    except RuntimeError as error:
        return first_line(error)
    return "for no known reason"


def _what_to_do(path: str) -> str:
    if is_remote(path):
        return (
            "Check the name of the bucket, that this machine may read it, and that array-record is "
            "0.8.3 or newer, or copy the file."
        )
    return "The copy is damaged: prepare the data set again."
