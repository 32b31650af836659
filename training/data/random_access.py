"""Opens a split of a data set for random access: `read(index)` gives one encoded example."""

import dataclasses
import os
from collections.abc import Callable

import tensorflow as tf

from training.data import array_records, dataset_lookup, image_folder, tfrecords, vtab_labels
from training.data.dataset_spec import DatasetSpec
from training.data.preprocessing.preprocess import Preprocess
from training.data.record_ranges import record_ranges
from training.data.tfds_folder import Prepared


@dataclasses.dataclass(frozen=True)
class Source:
    """A split of a data set, open for reading.

    Attributes:
        spec: the row of the table, with the sizes found on disk.
        num_examples: number of examples.
        record: maps an int64 index to the example's bytes as stored, in a TensorFlow graph.
        parse: maps a record and its index to `{"image": bytes, "label": class or classes, "id":
            string}` and the spec's extra labels. Images are still encoded.
        example_id: maps an index to the same id in Python, as TFDS's `add_tfds_id` writes it.
        records: maps an index and a count to so many records from there on, read together; None
            where neighbors are files of their own.
        stream: maps a dataset of (first index, count) of neighbors to the records of all of them,
            one after the other; None where they are best read one by one.
    """

    spec: DatasetSpec
    num_examples: int
    record: Callable[[tf.Tensor], tf.Tensor]
    parse: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]
    example_id: Callable[[int], str]
    records: Callable[[tf.Tensor, int], tf.Tensor] | None = None
    stream: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None

    def read(self, index: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the example at an int64 index, as `parse` does, in a TensorFlow graph."""
        return self.parse(self.record(index), index)

    def preprocess(self, text: str, reduced_decoding: float = 0.0) -> Preprocess:
        """Returns the operations of `text`, with what the data set's images need."""
        return Preprocess(
            text,
            pixel_scale=self.spec.pixel_scale,
            upright=self.spec.upright,
            reduced_decoding=reduced_decoding,
        )


def open_source(name: str, split: str, data_dir: str | os.PathLike | None = None) -> Source:
    """Opens `split` of the data set `name`.

    Raises:
        NotPreparedError: if it is not on disk, with the command or recipe that gets it.
        ValueError: for unknown names and splits, or a copy of unexpected size.
    """
    spec = dataset_lookup.get(name, data_dir)
    return _open_folder(spec, split) if spec.folder else _open_tfds(spec, split, data_dir)


def _open_tfds(spec: DatasetSpec, split: str, data_dir) -> Source:
    import tensorflow_datasets as tfds

    found = dataset_lookup.locate(spec, data_dir)
    _check_sizes(spec, found)
    spec = spec.with_sizes(found.sizes)
    ranges = spec.ranges(split)
    if found.file_format not in ("tfrecord", "array_record"):
        raise ValueError(
            f"Expected TFRecord or ArrayRecord files. {found.directory} holds {found.file_format}: "
            "prepare the data set again with file_format='tfrecord'."
        )
    builder = tfds.builder_from_directory(found.directory)
    rule = vtab_labels.rule(spec.label)
    extra = dict.fromkeys(spec.extra_labels, True)
    wanted = tfds.decode.PartialDecoding({"image": True, **rule.features, **extra})
    features = wanted.extract_features(builder.info.features)
    decoders = {"image": tfds.decode.SkipDecoding()}

    stored = record_ranges(builder.info, ranges)
    stream = None
    if found.file_format == "array_record":
        record, records = array_records.reader(stored)
    else:
        record, records, stream = tfrecords.reader(stored)

    def parse(record, index):
        example = features.deserialize_example(record, decoders=decoders)
        return {
            "image": example["image"],
            "label": rule.classify(example),
            "id": stored.id_of(index),
            **{key: example[key] for key in spec.extra_labels},
        }

    return Source(spec, len(stored), record, parse, stored.example_id, records, stream)


def _check_sizes(spec: DatasetSpec, found: Prepared) -> None:
    for name, size in spec.sizes.items():
        actual = found.sizes.get(name)
        if actual is not None and actual not in (size, *spec.other_sizes.get(name, ())):
            raise ValueError(
                f"Expected {size} examples in the split {name!r} of {found.name}. "
                f"{found.directory} holds {actual}. Prepare it again, or read it under another "
                f"name as tfds:{found.name}:{found.version}."
            )


def _open_folder(spec: DatasetSpec, split: str) -> Source:
    contents = image_folder.scan(spec.folder)
    items = [
        item
        for part in spec.ranges(split)
        for item in contents.splits[part.split][part.start : part.stop]
    ]
    names = tf.constant([os.fsencode(name) for name, _ in items])
    paths = tf.constant([os.fsencode(os.path.join(spec.folder, name)) for name, _ in items])
    classes = tf.constant([label for _, label in items], tf.int64)

    def record(index):
        return tf.io.read_file(tf.gather(paths, index))

    def parse(record, index):
        return {
            "image": record,
            "label": tf.gather(classes, index),
            "id": tf.gather(names, index),
        }

    def example_id(index):
        # A name that is not UTF-8 can be printed as well.
        return os.fsencode(items[index][0]).decode(errors="backslashreplace")

    return Source(spec, len(items), record, parse, example_id)
