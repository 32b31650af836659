"""Opens a split of a data set for random access: `read(index)` gives one encoded example."""

import dataclasses
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from training.data import dataset_lookup, image_folder, tfrecords, vtab_labels
from training.data.dataset_spec import DatasetSpec
from training.data.preprocessing.preprocess import Preprocess
from training.data.tfds_folder import Prepared


@dataclasses.dataclass(frozen=True)
class Source:
    """A split of a data set, open for reading.

    Attributes:
        spec: the row of the table, with the sizes found on disk.
        num_examples: number of examples.
        read: maps an int64 index to `{"image": bytes, "label": class or classes, "id": string}`
            and the spec's extra labels, in a TensorFlow graph. Images are still encoded.
        example_id: maps an index to the same id in Python, as TFDS's `add_tfds_id` writes it.
    """

    spec: DatasetSpec
    num_examples: int
    read: Callable[[tf.Tensor], dict[str, tf.Tensor]]
    example_id: Callable[[int], str]

    def preprocess(self, text: str) -> Preprocess:
        """Returns the operations of `text`, with what the data set's images need."""
        return Preprocess(text, pixel_scale=self.spec.pixel_scale, upright=self.spec.upright)


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
    if found.file_format != "tfrecord":
        raise ValueError(
            f"Expected TFRecord files. {found.directory} holds {found.file_format}: prepare the "
            "data set again with file_format='tfrecord'."
        )
    builder = tfds.builder_from_directory(found.directory)
    rule = vtab_labels.rule(spec.label)
    extra = dict.fromkeys(spec.extra_labels, True)
    wanted = tfds.decode.PartialDecoding({"image": True, **rule.features, **extra})
    features = wanted.extract_features(builder.info.features)
    decoders = {"image": tfds.decode.SkipDecoding()}

    files: list[str] = []
    shards, offsets, numbers = [], [], []
    for part in ranges:
        info = builder.info.splits[part.split]
        instructions = builder.info.splits[f"{part.split}[{part.start}:{part.stop}]"]
        wanted_files = {str(item.filename): item for item in instructions.file_instructions}
        paths = [str(path) for path in info.filepaths]
        used = [k for k, path in enumerate(paths) if path in wanted_files]
        starts = tfrecords.offsets([paths[k] for k in used], [info.shard_lengths[k] for k in used])
        for k, found_offsets in zip(used, starts, strict=True):
            item = wanted_files[paths[k]]
            chosen = slice(item.skip, item.skip + item.take if item.take >= 0 else None)
            offsets.append(found_offsets[chosen])
            numbers.append(np.arange(len(found_offsets))[chosen])
            shards.append(np.full(len(offsets[-1]), len(files), np.int32))
            files.append(paths[k])
    shards, offsets, numbers = map(np.concatenate, (shards, offsets, numbers))
    names = [os.path.basename(path) for path in files]
    # Made here and captured below, so that the tables of a large set stay out of the graph.
    shard_of, offset_of, number_of = map(tf.constant, (shards, offsets, numbers))
    files, file_names = tf.constant(files), tf.constant(names)

    def read(index):
        shard = tf.gather(shard_of, index)
        record = tfrecords.read_record(tf.gather(files, shard), tf.gather(offset_of, index))
        example = features.deserialize_example(record, decoders=decoders)
        number = tf.strings.as_string(tf.gather(number_of, index))
        return {
            "image": example["image"],
            "label": rule.classify(example),
            "id": tf.strings.join([tf.gather(file_names, shard), number], "__"),
            **{key: example[key] for key in spec.extra_labels},
        }

    def example_id(index):
        return f"{names[shards[index]]}__{numbers[index]}"

    return Source(spec, len(offsets), read, example_id)


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

    def read(index):
        return {
            "image": tf.io.read_file(tf.gather(paths, index)),
            "label": tf.gather(classes, index),
            "id": tf.gather(names, index),
        }

    def example_id(index):
        # A name that is not UTF-8 can be printed as well.
        return os.fsencode(items[index][0]).decode(errors="backslashreplace")

    return Source(spec, len(items), read, example_id)
