"""Predictions of any number of images, said so that another process can make a part of them."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from training.data import fingerprint, open_dataset
from training.data.preprocessing.preprocess import Preprocess
from training.io.paths import is_remote


class Shard(NamedTuple):
    """A part of the images, and the file of their predictions.

    Attributes:
        name: of the file.
        first: index of its first image.
        stop: index after its last.
    """

    name: str
    first: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Job:
    """Which predictions are written where. Paths may be in a store.

    Attributes:
        source: the model, as `training.evaluators.frozen_model.load_frozen` takes it.
        directory: for the shards.
        photos: image files; empty for a data set.
        dataset: its name, if it is one.
        split: of the data set.
        data_dir: folder of prepared data sets.
        checkpoint: `name`, `num_classes` and `image_size` of `load_frozen`.
        class_names: instead of the model's own.
        top: classes of each image.
        shard_size: images of a shard.
        representation: whether to write what the head is put on as well.
    """

    source: str
    directory: str
    photos: Sequence[str] = ()
    dataset: str = ""
    split: str = "test"
    data_dir: str | None = None
    checkpoint: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    class_names: Sequence[str] | None = None
    top: int = 5
    shard_size: int = 1_000
    representation: bool = False

    def shards(self, count: int) -> list[Shard]:
        """Returns the parts of `count` images, in order."""
        number = -(-count // self.shard_size)
        return [
            Shard(
                f"predictions-{k:05d}-of-{number:05d}.parquet",
                k * self.shard_size,
                min((k + 1) * self.shard_size, count),
            )
            for k in range(number)
        ]


class Images(NamedTuple):
    """Images in an order that is the same in every process.

    Attributes:
        total: how many.
        read: int64 index -> the encoded image, a string scalar, in a TensorFlow graph.
        name: index -> what its row is called.
        identity: equal for the same images in the same order.
        process: makes them into images of the model.
    """

    total: int
    read: Callable[[tf.Tensor], tf.Tensor]
    name: Callable[[int], str]
    identity: str
    process: Preprocess


def open_images(job: Job, preprocess: str) -> Images:
    """Opens the images of a job, to be prepared by the operations `preprocess`.

    Raises:
        NotPreparedError, ValueError: as `training.data.open`.
    """
    if job.dataset:
        split = open_dataset(job.dataset, job.data_dir).split(job.split)
        return Images(
            split.num_examples,
            lambda index: split.read(index)["image"],
            split.example_id,
            split.identity,
            split.preprocess(preprocess),
        )
    encoded = [os.fsencode(file) for file in job.photos]
    paths = tf.constant(encoded)
    return Images(
        len(encoded),
        lambda index: tf.io.read_file(tf.gather(paths, index)),
        lambda index: encoded[index].decode(errors="backslashreplace"),
        fingerprint.digest_of(part for file in encoded for part in (file, _details_of(file))),
        Preprocess(preprocess),
    )


def _details_of(file: bytes) -> bytes:
    """Returns size and time of a photo as text; a store would be asked for each of a million."""
    name = os.fsdecode(file)
    if is_remote(name) or not os.path.exists(name):
        return b""
    stat = os.stat(name)
    return b"%d %d" % (stat.st_size, stat.st_mtime_ns)
