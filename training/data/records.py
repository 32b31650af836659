"""Reads single examples of a split: photos, and records of TFRecord or ArrayRecord files.

A TFRecord file has no index, but every record starts with its length, so a scan of a few bytes per
record finds all offsets. With them any example is read alone: shuffling is a permutation of
numbers, and a run resumes at any step without reading what comes before. ArrayRecord files bring
their index.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import os
import pathlib
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.photos.prepare_photos import upright_size

from ..errors import UsageError, first_line
from ..io.atomic import atomic_file
from ..io.paths import any_path, cache_folder, is_remote, size_and_time
from ..io.progress_bar import track
from ..io.quiet_start import without_warnings
from ..io.remote_stores import local_file
from .sets import fingerprint, vtab_labels
from .sets.known_datasets import DatasetSpec
from .sets.photo_sets import ADE20K, PhotoSet, mask_path, photo_path, read_mask
from .sets.splits import Photo, Range
from .sets.tfds_folder import ARRAY_RECORD
from .traced_functions import as_it_stands

# A record is its length (8 bytes), a checksum (4), the data and another checksum (4).
_HEADER_BYTES = 8
_FRAME_BYTES = 16
_THREADS = 16
_INDEX = ".offsets.npy"
# Files below this size are scanned in less time than a cache would take to look up.
_CACHE_FROM_BYTES = 32 * 2**20
# One request reads at most so many neighboring records, and bytes of them.
_RUN, _RUN_BYTES = 256, 16 * 2**20
# Runs of remote files that are read in parallel.
_STREAMS = 8
# Suits reading single records, not a file from end to end.
_ARRAY_RECORD_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


class Reader(NamedTuple):
    """Reads the examples of a split at random, in TensorFlow graphs."""

    record: Callable[[tf.Tensor], tf.Tensor]  # maps an int64 index to the bytes as stored
    # Maps a record and its index to what `Split.read` returns.
    parse: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]
    example_id: Callable[[int], str]  # maps an index to its id, as TFDS's `add_tfds_id` writes it
    fingerprint: Callable[[], dict[str, Any]]  # of the examples, see `sets.fingerprint`
    # Maps sorted indices, int64 (n,), to a dataset of their records, which reads neighbors at once;
    # None where they are best read one by one.
    stream: Callable[[np.ndarray], tf.data.Dataset] | None = None
    remote: bool = False  # whether the files are in a store: it answers slowly, but many at a time
    modified: Callable[[], str] = str  # the fingerprint's digest of times now; "" of photos


def photo_reader(place: pathlib.Path, photos: Sequence[Photo], num_classes: int) -> Reader:
    """Returns the reader of photos below `place`, whose labels are below `num_classes`."""
    files = [photo_path(place, photo.path) for photo in photos]
    paths = tf.constant([os.fsencode(file) for file in files])
    labels = tf.constant([photo.label for photo in photos], tf.int64)
    return Reader(
        record=lambda index: tf.io.read_file(tf.gather(paths, index)),
        parse=lambda record, index: {"image": record, "label": tf.gather(labels, index)},
        # A name that is not UTF-8 can be printed as well.
        example_id=lambda index: os.fsencode(photos[index].path).decode(errors="backslashreplace"),
        fingerprint=lambda: fingerprint.of_photos(photos, num_classes),
        remote=any(map(is_remote, files)),
    )


def target_reader(
    place: pathlib.Path, photos: Sequence[Photo], targets: Mapping[str, tuple[float, ...]]
) -> Reader:
    """Returns the reader of photos whose labels are rows of numbers, float32, by their path."""
    reader, rows = photo_reader(place, photos, 1), [targets[photo.path] for photo in photos]
    table = tf.constant(rows, tf.float32)
    found = fingerprint.of_photos(photos, 1)
    texts = (f"{row}".encode() for row in rows)
    digest = fingerprint.digest_of([found["digest"].encode(), *texts])
    about = {"examples": len(photos), "digest": digest, "modified": found["modified"]}
    return reader._replace(
        parse=lambda record, index: {"image": record, "label": tf.gather(table, index)},
        fingerprint=lambda: about,
    )


def mask_reader(data: PhotoSet, photos: Sequence[Photo]) -> Reader:
    """Returns the reader of some photos of a set whose labels are maps, see `read_masks`.

    A mask is int32 (height, width, 1). Reading raises ValueError for one of another size than its
    photo, turned as its EXIF orientation says.
    """
    reader, first = photo_reader(data.root, photos, 1), int(data.masks == ADE20K)
    names = [mask_path(photo.path, data.masks) for photo in photos]
    files = [photo_path(data.root, name) for name in names]
    paths = tf.constant([os.fsencode(file) for file in files])

    def read(index, photo, content):
        # Eagerly, TensorFlow gives arrays of one object.
        photo, content = (x if isinstance(x, bytes) else x.item() for x in (photo, content))
        found = read_mask(content, names[index]) - first
        try:
            height, width = upright_size(io.BytesIO(photo))
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{photos[index].path} cannot be read as an image") from error
        if found.shape[:2] != (height, width):
            raise ValueError(
                f"Expected a mask of {height} x {width}, the size of {photos[index].path}. "
                f"Received: {names[index]} of {found.shape[0]} x {found.shape[1]}."
            )
        return found

    def parse(record, index):
        content = tf.io.read_file(tf.gather(paths, index))
        found = tf.numpy_function(read, [index, record, content], tf.int32)
        return {"image": record, "label": tf.ensure_shape(found, [None, None, 1])}

    def identify():
        stats = [size_and_time(file) for file in files]
        found = fingerprint.of_photos(photos, 1)
        sizes = [f"{size}".encode() for size, _ in stats]
        times = [f"{time}".encode() for _, time in stats]
        return {
            "examples": len(photos),
            "digest": fingerprint.digest_of([found["digest"].encode(), *sizes]),
            "modified": fingerprint.digest_of([found["modified"].encode(), *times]),
        }

    return reader._replace(parse=parse, fingerprint=identify)


def record_reader(
    place: pathlib.Path, spec: DatasetSpec, info: Any, ranges: Sequence[Range]
) -> Reader:
    """Returns the reader of ranges of what TFDS prepared at `place`; errors as `Split.reader`."""
    import tensorflow_datasets as tfds

    rule = vtab_labels.rule(spec.label)
    extra = dict.fromkeys(spec.extra_labels, True)
    wanted = tfds.decode.PartialDecoding({spec.image: True, **rule.features, **extra})
    # TFDS warns of a name that it uses itself.
    with without_warnings("absl"):
        features = wanted.extract_features(info.features)
    parts = [
        (os.fspath(one.filename), one.examples_in_shard, one.skip, one.take)
        for part in ranges
        for one in info.splits[f"{part.split}[{part.start}:{part.stop}]"].file_instructions
    ]
    files, lengths, skips, counts = zip(*parts, strict=True)
    shards = Shards(files, lengths, skips, counts, str(ranges))
    is_array = info.file_format.value == ARRAY_RECORD
    # TFDS passes over files that are said to have no records.
    for name in {part.split for part in ranges}:
        native = info.splits[name]
        for path, length in zip(native.filepaths, native.shard_lengths, strict=True):
            if not length and path.exists():
                (_open_array_record if is_array else _offsets)(os.fspath(path), 0)

    def parse(record, index):
        decoders = {spec.image: tfds.decode.SkipDecoding()}
        example = features.deserialize_example(record, decoders=decoders)
        found = {"image": example[spec.image], **{key: example[key] for key in extra}}
        return {**found, "label": rule.classify(example)}

    try:
        return (array_record_reader if is_array else tfrecord_reader)(shards, parse)
    except tf.errors.NotFoundError as error:
        raise ValueError(
            f"Expected the files that {place}/dataset_info.json names. Received: "
            f"{first_line(error)}. Copy or prepare the data set again."
        ) from error


@dataclasses.dataclass(eq=False)
class Shards:
    """The records of a split, numbered across its files.

    Each file has `lengths` records, of which the split has `counts` after the first `skips`.
    """

    files: Sequence[str]
    lengths: Sequence[int]
    skips: Sequence[int]
    counts: Sequence[int]
    # The ranges of native splits.
    ranges: str = ""

    def __post_init__(self) -> None:
        self.remote = any(map(is_remote, self.files))
        self.names = [os.path.basename(file) for file in self.files]
        self._firsts = np.cumsum([0, *self.counts], dtype=np.int64)
        self._shifts = np.array(self.skips, np.int64) - self._firsts[:-1]

    def fingerprint(self, identity: Iterable[bytes]) -> dict[str, Any]:
        """Returns what identifies the records, given names, sizes and index of the files."""
        parts = itertools.chain([self.ranges.encode()], identity)
        digest = fingerprint.digest_of(parts)
        return {"examples": sum(self.counts), "digest": digest, "modified": self.modified()}

    def modified(self) -> str:
        """Returns a digest of the times of the files' last change."""
        times = (str(size_and_time(file)[1]).encode() for file in self.files)
        return fingerprint.digest_of(times)

    def place(self, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the numbers of the file that holds a record, and of the record in it."""
        file = tf.searchsorted(self._firsts, index[None], side="right", out_type=tf.int64)[0] - 1
        return file, index + tf.gather(self._shifts, file)

    def files_of(self, indices: np.ndarray | int) -> np.ndarray:
        """Returns the numbers of the files that hold records."""
        return np.searchsorted(self._firsts, indices, side="right") - 1

    def example_id(self, index: int) -> str:
        """Returns the id of an example, as TFDS's `add_tfds_id` writes it."""
        file = int(self.files_of(index))
        return f"{self.names[file]}__{index + self._shifts[file]}"


def tfrecord_reader(shards: Shards, parse: Callable) -> Reader:
    """Returns the reader of TFRecord files, which verifies checksums; errors as `offsets`."""
    starts = offsets(shards.files, shards.lengths)
    # Computed now, so that the tables of whole files can be freed.
    named = zip(shards.names, starts, strict=True)
    found = shards.fingerprint(f"{name}\0".encode() + start.tobytes() for name, start in named)
    wanted = [
        each[skip : skip + count + 1]
        for each, skip, count in zip(starts, shards.skips, shards.counts, strict=True)
    ]
    # Captured, so that the table of a large set stays out of the graph. Each file has one offset
    # more than records: the end of its last.
    offset_of, file_of = tf.constant(np.concatenate(wanted)), tf.constant(shards.files)

    def of_file(file, begin, count):
        first, stop = tf.gather(offset_of, begin + file), tf.gather(offset_of, begin + file + count)
        records = tf.raw_ops.TFRecordDatasetV2(
            filenames=tf.gather(file_of, file)[None],
            compression_type="",
            buffer_size=tf.minimum(stop - first, _RUN_BYTES),
            byte_offsets=first[None],
        )
        spec = tf.TensorSpec((), tf.string)
        return tf.data.experimental.from_variant(records, spec).take(count)

    def record(index):
        return of_file(shards.place(index)[0], index, np.int64(1)).get_single_element()

    def stream(indices):
        files = shards.files_of(indices)
        # A run ends with a file, before a gap, and where it is long.
        begins = (np.diff(indices, prepend=-2) != 1) | (np.diff(files, prepend=-1) != 0)
        begins = np.flatnonzero(begins | (np.arange(len(indices)) % _RUN == 0))
        runs = files[begins], indices[begins], np.diff(begins, append=len(indices))
        # A store answers slowly, and many requests at a time.
        at_once = _STREAMS if shards.remote else None
        return tf.data.Dataset.from_tensor_slices(runs).interleave(
            as_it_stands(of_file),
            cycle_length=at_once or 1,
            # As long as a run, so that each is read to its end before the next.
            block_length=_RUN,
            num_parallel_calls=at_once,
        )

    about = shards.example_id, lambda: found, stream, shards.remote, shards.modified
    return Reader(record, parse, *about)


def offsets(paths: Sequence[str], lengths: Sequence[int]) -> list[np.ndarray]:
    """Returns, for each TFRecord file, the offsets in bytes of its records and its size, int64.

    Raises:
        ValueError: if a file is cut short or holds another number of records than `lengths` says.
    """
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(_offsets, paths, lengths))


def write_index(paths: Sequence[str]) -> None:
    """Writes the index of each TFRecord file beside it; raises `ValueError` if one is cut short.

    A file is read once from end to end, a remote one into a copy here, so that nobody needs a
    request for each record again.
    """

    def write(path):
        size = tf.io.gfile.stat(path).length
        with local_file(path) as local:
            found = _scan(local, size)
        with atomic_file(any_path(path + _INDEX)) as temporary:
            np.save(temporary, found)

    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        written = [pool.submit(write, path) for path in paths]
        for each in track(written, "indexing", len(paths)):
            each.result()


def _offsets(path: str, length: int) -> np.ndarray:
    stat = tf.io.gfile.stat(path)
    if tf.io.gfile.exists(path + _INDEX):
        found = _indexed(path, stat.length)
    elif stat.length < _CACHE_FROM_BYTES:
        found = _scan(path, stat.length)
    else:
        found = _cached_scan(path, stat)
    if len(found) != length + 1:
        raise _another_number(path, length, len(found) - 1)
    return found


def _indexed(path, size):
    try:
        found = _load(path + _INDEX)
    # A damaged array fails in many ways, depending on which byte it is.
    except Exception as error:
        raise ValueError(
            f"Expected the index of records in {path + _INDEX}, which is damaged. Write it again "
            "with: keras-vit data index"
        ) from error
    if found[-1] != size:
        raise ValueError(
            f"Expected {found[-1]} bytes in {path}, as its index says. Found {size}. Copy or "
            "prepare it again, then write its index with: keras-vit data index"
        )
    return found


def _cached_scan(path, stat):
    # TensorFlow tells the second of the last change.
    changed = size_and_time(path)[1] or stat.mtime_nsec
    key = hashlib.sha256(f"{path}\0{stat.length}\0{changed}".encode()).hexdigest()
    cache = cache_folder("record_offsets") / f"{key}.npy"
    with contextlib.suppress(Exception):
        found = _load(os.fspath(cache))
        if found[-1] == stat.length:
            return found
    found = _scan(path, stat.length)
    # A cache that cannot be written costs time, not correctness.
    with contextlib.suppress(OSError), atomic_file(cache) as temporary:
        np.save(temporary, found)
    return found


def _load(index: str) -> np.ndarray:
    """Returns the offsets, int64, of a file of them, of which none may stand twice."""
    with tf.io.gfile.GFile(index, "rb") as file:
        found = np.load(io.BytesIO(file.read())).astype(np.int64)
    if found[0] != 0 or (np.diff(found) < _FRAME_BYTES).any():
        raise ValueError("these are no offsets of records")
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
    return np.asarray([*found, size], np.int64)


def array_record_reader(shards: Shards, parse: Callable) -> Reader:
    """Returns the reader of ArrayRecord files, on a disk or in gs://.

    Raises:
        UsageError: if ArrayRecord is not installed.
        ValueError: if a file cannot be read, is cut short or holds another number of records.
    """

    @functools.cache
    def open_file(number):
        path = shards.files[number]
        # A reader of a file in a store returns wrong bytes to several threads.
        alone = threading.Lock() if is_remote(path) else contextlib.nullcontext()
        return _open_array_record(path, shards.lengths[number]), alone

    def read(number, place):
        found, alone = open_file(int(number))
        with alone:
            return found.read(int(place), int(place) + 1)[0]

    def record(index):
        return tf.ensure_shape(tf.numpy_function(read, shards.place(index), tf.string), [])

    @functools.cache
    def identify():
        sizes = (tf.io.gfile.stat(file).length for file in shards.files)
        rows = zip(shards.names, sizes, shards.lengths, strict=True)
        return shards.fingerprint("{} {} {}".format(*row).encode() for row in rows)

    open_file(0)
    if not shards.remote:
        identify()  # `Dataset.require_unchanged` compares with the times of now.
    about = shards.example_id, identify, None, shards.remote, shards.modified
    return Reader(record, parse, *about)


def _open_array_record(path: str, length: int) -> Any:
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        raise UsageError(
            "ArrayRecord files need the package array-record, which is made for Linux: pip install "
            "array-record, or prepare the data set as TFRecord files."
        ) from error
    found = array_record_module.ArrayRecordReader(path, options=_ARRAY_RECORD_OPTIONS)
    if not found.ok():
        reason = "for no known reason"
        try:
            found.close()
        except RuntimeError as error:
            reason = first_line(error)
        remedy = (
            "Check the name of the bucket, of gs:// alone, and that array-record is 0.8.3 or "
            "newer, or copy the file."
            if is_remote(path)
            else "The copy is damaged: prepare the data set again."
        )
        raise ValueError(f"{path} cannot be read: {reason}. {remedy}")
    if found.num_records() != length:
        raise _another_number(path, length, found.num_records())
    return found


def _another_number(path, expected, found):
    return ValueError(
        f"Expected {expected} records in {path}. Found {found}. The copy is damaged: prepare the "
        "data set again."
    )
