"""The model, images and output of a prediction, as data that is sent to other processes."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_vit.training.data import Split, fingerprint, open_dataset
from keras_vit.training.data.preprocessing.preprocess import Preprocess
from keras_vit.training.io.paths import is_remote, size_and_time


@dataclasses.dataclass(frozen=True)
class Job:
    """Which images are predicted, and where shards of it are written. Paths may be in a store.

    Attributes:
        source: the model, as `training.evaluators.evaluated_model.load_frozen` takes it.
        photos: image files; empty for a data set.
        directory: for the shards, if any are written.
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
    photos: Sequence[str] = ()
    directory: str = ""
    dataset: str = ""
    split: str = "test"
    data_dir: str | None = None
    checkpoint: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    class_names: Sequence[str] | None = None
    top: int = 5
    shard_size: int = 1_000
    representation: bool = False

    def shards(self, count: int) -> dict[str, range]:
        """Returns {name of a file: numbers of its images} for `count` images, in order."""
        size, number = self.shard_size, -(-count // self.shard_size)
        return {
            f"predictions-{k:05d}-of-{number:05d}.parquet": range(count)[k * size :][:size]
            for k in range(number)
        }

    def images(self) -> "Split | Photos":
        """Opens the images, whose order is the same in every process.

        Raises:
            NotPreparedError, ValueError: as `training.data.open`.
        """
        if self.dataset:
            return open_dataset(self.dataset, self.data_dir).split(self.split)
        return Photos(self.photos)


class Photos:
    """Image files, with what is used of a `Split`.

    Args:
        files: their paths.
    """

    preprocess = Preprocess

    def __init__(self, files: Sequence[str]):
        self._files = [os.fsencode(file) for file in files]
        self._paths = tf.constant(self._files)
        self.num_examples = len(files)
        self.identity = fingerprint.digest_of(
            part for file in self._files for part in (file, _details_of(file))
        )

    def read(self, index: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the encoded image, a string scalar, as `image`, in a TensorFlow graph."""
        return {"image": tf.io.read_file(tf.gather(self._paths, index))}

    def example_id(self, index: int) -> str:
        """Returns a path; bytes of it that are not UTF-8 are escaped."""
        return self._files[index].decode(errors="backslashreplace")


def _details_of(file: bytes) -> bytes:
    name = os.fsdecode(file)
    is_here = not is_remote(name) and os.path.exists(name)
    return b"%d %d" % size_and_time(name) if is_here else b""
