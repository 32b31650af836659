"""Random access to TFRecord files.

A TFRecord file has no index, but every record starts with its length, so the offsets follow
from reading a few bytes per record. They are all that is needed to read any example at once:
shuffling is then a permutation of numbers, and a run resumes at any step without reading what
comes before.
"""

import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import struct
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from training.io.atomic import whole_file

# A record is its length (8 bytes), a checksum (4), the data and another checksum (4).
_HEADER_BYTES = 8
_FRAME_BYTES = 16
_THREADS = 16
# Files below this size are scanned in less time than a cache would take to look up.
_CACHE_FROM_BYTES = 32 * 2**20
# One request brings most records in; local files then cost two system calls each.
_BUFFER_BYTES = 16 * 2**10


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
    record = tf.raw_ops.TFRecordDatasetV2(
        filenames=path[None],
        compression_type="",
        buffer_size=tf.constant(_BUFFER_BYTES, tf.int64),
        byte_offsets=offset[None],
    )
    dataset = tf.data.experimental.from_variant(record, tf.TensorSpec((), tf.string))
    return dataset.take(1).get_single_element()


def _offsets(path: str, length: int) -> np.ndarray:
    stat = tf.io.gfile.stat(path)
    cache = _cache_file(path, stat) if stat.length >= _CACHE_FROM_BYTES else None
    found = kept(cache, length) if cache else None
    if found is None:
        found = _scan(path, stat.length)
        if cache:
            _save(cache, found)
    if len(found) != length:
        raise ValueError(
            f"Expected {length} records in {path}. Found {len(found)}. "
            "The copy is damaged: prepare the data set again."
        )
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
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    key = hashlib.sha256(f"{path}\0{stat.length}\0{stat.mtime_nsec}".encode()).hexdigest()
    return pathlib.Path(root, "keras_vit", "record_offsets", f"{key}.npy")


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
    with contextlib.suppress(OSError), whole_file(cache) as temporary:
        np.save(temporary, found)
