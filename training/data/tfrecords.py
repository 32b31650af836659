"""Random access to TFRecord files.

A TFRecord file has no index, but every record starts with its length, so the offsets follow
from reading a few bytes per record. They are all that is needed to read any example at once:
shuffling is then a permutation of numbers, and a run resumes at any step without reading what
comes before.
"""

import concurrent.futures
import contextlib
import hashlib
import io
import pathlib
import struct
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from training.data.record_ranges import RecordRanges
from training.data.tracing import as_it_stands
from training.io.atomic import atomic_file
from training.io.paths import any_path, cache_folder, is_remote
from training.io.stores import local_file

# A record is its length (8 bytes), a checksum (4), the data and another checksum (4).
_HEADER_BYTES = 8
_FRAME_BYTES = 16
_THREADS = 16
_INDEX = ".offsets.npy"
# Files below this size are scanned in less time than a cache would take to look up.
_CACHE_FROM_BYTES = 32 * 2**20
# One request brings most records in; local files then cost two system calls each.
_BUFFER_BYTES = 16 * 2**10
# Of neighboring records: what one request brings at most, and what is left for the last of them.
_RUN_BYTES = 16 * 2**20
_LAST_BYTES = 256 * 2**10
# Runs of remote files that are read at a time.
_STREAMS = 8


def reader(
    ranges: RecordRanges,
) -> tuple[
    Callable[[tf.Tensor], tf.Tensor],
    Callable[[tf.Tensor, int], tf.Tensor],
    Callable[[tf.data.Dataset], tf.data.Dataset],
]:
    """Returns how TFRecord files are read: `record`, `records`, `stream` of `random_access.Source`.

    Raises:
        ValueError: if a file is cut short or holds another number of records.
    """
    starts = offsets(ranges.files, ranges.lengths)
    wanted = [
        each[skip : skip + count]
        for each, skip, count in zip(starts, ranges.skips, ranges.counts, strict=True)
    ]
    # Captured, so that the table of a large set stays out of the graph.
    offset_of, file_of = tf.constant(np.concatenate(wanted)), tf.constant(ranges.files)

    def record(index):
        return read_record(tf.gather(file_of, ranges.place(index)[0]), tf.gather(offset_of, index))

    def records(first, count):
        files, begins, ends = ranges.runs(first, count)
        places = tf.gather(offset_of, begins), tf.gather(offset_of, ends - 1)
        return read_runs(tf.gather(file_of, files), *places, ends - begins, count)

    def of_file(file, begin, end):
        first, last = tf.gather(offset_of, begin), tf.gather(offset_of, end - 1)
        return run_from(tf.gather(file_of, file), first, last, end - begin)

    def stream(runs):
        pieces = runs.flat_map(
            as_it_stands(lambda *run: tf.data.Dataset.from_tensor_slices(ranges.runs(*run)))
        )
        # A store answers slowly, and many requests at a time.
        at_once = _STREAMS if any(map(is_remote, ranges.files)) else None
        return pieces.interleave(
            as_it_stands(of_file),
            cycle_length=at_once or 1,
            # Longer than any piece, so that each is read to its end before the next.
            block_length=len(ranges) + 1,
            num_parallel_calls=at_once,
        )

    return record, records, stream


def offsets(paths: Sequence[str], lengths: Sequence[int]) -> list[np.ndarray]:
    """Returns, for each file, the offsets in bytes of its records, int64.

    Args:
        paths: TFRecord files.
        lengths: number of records that each file must hold.

    Raises:
        ValueError: if a file is cut short or holds another number of records.
    """
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(_offsets, paths, lengths))


def read_record(path: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Returns the record, a string scalar, at `offset` of the file `path`; checksums verified."""
    dataset = records_from(path, offset, tf.constant(_BUFFER_BYTES, tf.int64))
    return dataset.take(1).get_single_element()


def read_runs(
    paths: tf.Tensor, firsts: tf.Tensor, lasts: tf.Tensor, counts: tf.Tensor, total: int
) -> tf.Tensor:
    """Returns neighboring records of files, (total,) strings, in one request a file if they fit.

    Args:
        paths: strings (files,).
        firsts: int64 (files,), the offset of the first record wanted of each file.
        lasts: int64 (files,), of the last one.
        counts: int64 (files,), records wanted of each; their sum is `total`.
        total: number of records.
    """

    files = tf.data.Dataset.from_tensor_slices((paths, firsts, lasts, counts))
    return files.flat_map(run_from).batch(total).get_single_element()


def run_from(
    path: tf.Tensor, first: tf.Tensor, last: tf.Tensor, count: tf.Tensor
) -> tf.data.Dataset:
    """Returns `count` neighboring records of a file, from the offset `first` to that of `last`."""
    # The last one's length is unknown: that of photos, or another request.
    size = tf.clip_by_value(last - first + _LAST_BYTES, _BUFFER_BYTES, _RUN_BYTES)
    return records_from(path, first, size).take(count)


def records_from(path: tf.Tensor, offset: tf.Tensor, buffer_bytes: tf.Tensor) -> tf.data.Dataset:
    """Returns the records of the file `path` from `offset` on, read so many bytes at a time."""
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=path[None],
        compression_type="",
        buffer_size=buffer_bytes,
        byte_offsets=offset[None],
    )
    return tf.data.experimental.from_variant(records, tf.TensorSpec((), tf.string))


def write_index(path: str) -> int:
    """Writes the index of a TFRecord file beside it, and returns its number of records.

    The file is read once from end to end, a remote one into a copy here, so that nobody needs a
    request for each record again.

    Raises:
        ValueError: if the file is cut short.
        UsageError, TrainingError: if it is remote and cannot be read or written.
    """
    size = tf.io.gfile.stat(path).length
    with local_file(path) as local:
        found = _scan(local, size)
    with atomic_file(any_path(path + _INDEX)) as temporary:
        np.save(temporary, np.append(found, size))
    return len(found)


def _read_index(path: str, size: int) -> np.ndarray | None:
    """Returns the offsets that the index beside a file says, or None without one."""
    if not tf.io.gfile.exists(path + _INDEX):
        return None
    with tf.io.gfile.GFile(path + _INDEX, "rb") as file:
        content = file.read()
    try:
        found = np.load(io.BytesIO(content))
        end = int(found[-1])
    except (ValueError, EOFError, TypeError, IndexError) as error:
        raise ValueError(
            f"Expected the index of records in {path + _INDEX}, which is damaged. Write it again "
            "with: python -m training data index"
        ) from error
    if end != size:
        raise ValueError(
            f"Expected {end} bytes in {path}, as its index says. Found {size}. Copy or prepare it "
            "again, then write its index with: python -m training data index"
        )
    return found[:-1].astype(np.int64)


def _offsets(path: str, length: int) -> np.ndarray:
    stat = tf.io.gfile.stat(path)
    found = _read_index(path, stat.length)
    if found is None:
        found = _scanned(path, stat, length)
    if len(found) != length:
        raise ValueError(
            f"Expected {length} records in {path}. Found {len(found)}. "
            "The copy is damaged: prepare the data set again."
        )
    return found


def _scanned(path, stat, length):
    cache = _cache_file(path, stat) if stat.length >= _CACHE_FROM_BYTES else None
    found = kept(cache, length) if cache else None
    if found is None:
        found = _scan(path, stat.length)
        if cache:
            _save(cache, found)
    return found


def _scan(path: str, size: int) -> np.ndarray:
    found, offset = [], 0
    with tf.io.gfile.GFile(path, "rb") if "://" in path else open(path, "rb", buffering=0) as file:
        while offset < size:
            found.append(offset)
            file.seek(offset)
            header = file.read(_HEADER_BYTES)
            if len(header) == _HEADER_BYTES:
                offset += struct.unpack("<Q", header)[0] + _FRAME_BYTES
            else:
                offset = size + 1
    if offset != size:
        raise ValueError(
            f"{path} is cut short: its last record should end at byte {offset}, the file ends at "
            f"{size}. Copy or prepare it again."
        )
    return np.asarray(found, np.int64)


def _cache_file(path: str, stat) -> pathlib.Path:
    key = hashlib.sha256(f"{path}\0{stat.length}\0{stat.mtime_nsec}".encode()).hexdigest()
    return cache_folder("record_offsets") / f"{key}.npy"


def kept(cache: pathlib.Path, length: int) -> np.ndarray | None:
    """Returns the offsets that were kept, or None if there are none, or they are damaged."""
    try:
        found = np.load(cache)
    except Exception:
        # A damaged array fails in many ways, depending on which byte it is.
        return None
    return found if found.shape == (length,) and found.dtype == np.int64 else None


def _save(cache: pathlib.Path, found: np.ndarray) -> None:
    # A cache that cannot be written costs time, not correctness.
    with contextlib.suppress(OSError), atomic_file(cache) as temporary:
        np.save(temporary, found)
