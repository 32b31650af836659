"""How the examples of a split are read: photos from their files, records from those of TFDS."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from training.data import fingerprint, records, vtab_labels
from training.data.photo_sets import photo_path
from training.data.splits import Photo
from training.io.paths import is_remote


class Reader(NamedTuple):
    """Reads the examples of a split at random, in TensorFlow graphs.

    Attributes:
        record: maps an int64 index to the example's bytes as stored.
        parse: maps a record and its index to `{"image": bytes, "label": class or classes, "id":
            string}` and extra labels. Images are still encoded.
        example_id: maps an index to the same id in Python, as TFDS's `add_tfds_id` writes it.
        fingerprint: what identifies the examples, see `training.data.fingerprint`.
        stream: maps a dataset of (first index, count) of neighbors to the records of all of them,
            one after the other; None where they are best read one by one.
        remote: whether the files are in a store, which answers slowly, but many at a time.
    """

    record: Callable[[tf.Tensor], tf.Tensor]
    parse: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]
    example_id: Callable[[int], str]
    fingerprint: Callable[[], dict[str, Any]]
    stream: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None
    remote: bool = False


def photo_reader(dataset: Any, photos: Sequence[Photo]) -> Reader:
    """Returns the reader of photos of a `Dataset`."""
    names = tf.constant([os.fsencode(photo.path) for photo in photos])
    files = [photo_path(dataset.place, photo.path) for photo in photos]
    paths = tf.constant([os.fsencode(file) for file in files])
    classes = tf.constant([photo.label for photo in photos], tf.int64)

    def parse(record, index):
        return {
            "image": record,
            "label": tf.gather(classes, index),
            "id": tf.gather(names, index),
        }

    return Reader(
        record=lambda index: tf.io.read_file(tf.gather(paths, index)),
        parse=parse,
        # A name that is not UTF-8 can be printed as well.
        example_id=lambda index: os.fsencode(photos[index].path).decode(errors="backslashreplace"),
        fingerprint=lambda: fingerprint.of_photos(photos, dataset.num_classes),
        remote=any(map(is_remote, files)),
    )


def record_reader(dataset: Any, split: str) -> Reader:
    """Returns the reader of a split of a `Dataset` that TFDS prepared.

    Raises:
        ValueError: for another format, or files that are damaged.
        UsageError: for files that cannot be read here.
    """
    import tensorflow_datasets as tfds

    found, spec = dataset.prepared, dataset.spec
    open_files = {
        "tfrecord": records.tfrecord_reader,
        "array_record": records.array_record_reader,
    }.get(found.file_format)
    if open_files is None:
        raise ValueError(
            f"Expected TFRecord or ArrayRecord files. {found.directory} holds {found.file_format}: "
            "prepare the data set again with file_format='tfrecord'."
        )
    info = tfds.builder_from_directory(found.directory).info
    rule = vtab_labels.rule(spec.label)
    extra = dict.fromkeys(spec.extra_labels, True)
    wanted = tfds.decode.PartialDecoding({"image": True, **rule.features, **extra})
    features = wanted.extract_features(info.features)
    decoders = {"image": tfds.decode.SkipDecoding()}
    ranges = spec.ranges(split)
    shards = records.Shards.of(info, ranges)
    read = open_files(shards)

    def parse(record, index):
        example = features.deserialize_example(record, decoders=decoders)
        return {
            "image": example["image"],
            "label": rule.classify(example),
            "id": shards.id_of(index),
            **{key: example[key] for key in spec.extra_labels},
        }

    return Reader(
        record=read.record,
        parse=parse,
        example_id=shards.example_id,
        fingerprint=lambda: fingerprint.of_records(len(shards), str(ranges), read.identity),
        stream=read.stream,
        remote=any(map(is_remote, shards.files)),
    )
