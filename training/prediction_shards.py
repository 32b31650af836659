"""Predictions as Parquet shards, each of which is computed once and appears whole."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.hidden_folder import remove_unfinished
from keras_vit.predict import top_classes
from keras_vit.typing import Tensor
from training.data.graph import as_it_stands
from training.errors import UsageError, first_line
from training.evaluators.frozen_model import load_frozen
from training.io.atomic import atomic_file, write_text
from training.io.locks import lock
from training.io.paths import any_path, attempt, is_remote
from training.io.stores import local_file
from training.prediction_job import Job, Shard, open_images
from training.predictions import probabilities_of, require_head

BATCH = 64
# Readers of a folder of Parquet files pass over such names.
MANIFEST = "_predictions.json"

# What a store that does not answer raises, rather than an image that is damaged.
_OF_STORES = (
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
)


class Predictor:
    """Writes shards of a job.

    The columns are `id` (string), `classes` (list of int32, the most probable first), `names`
    (list of string), `probabilities` (list of float32), `representation` (list of float32, null
    unless asked for) and `error`: why an image cannot be read, whose other columns are null.

    Args:
        job: what is predicted.

    Attributes:
        count: number of images.
        shards: all of the job.

    Raises:
        UsageError, ValueError, OSError: if the model or the images cannot be opened.
    """

    def __init__(self, job: Job):
        self._job = job
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(local_file(job.source))
            self._model = load_frozen(file, **job.checkpoint)
            # LiteRT opens its file again in each thread.
            self._copy = stack.pop_all() if file.endswith(".tflite") else None
        require_head(self._model)
        self._names = self._model.class_names if job.class_names is None else job.class_names
        self._images = open_images(job, self._model.preprocess)
        self.count = self._images.total
        self.shards = job.shards(self.count)

    @property
    def manifest(self) -> dict[str, Any]:
        """What every row depends on."""
        names = "\n".join(self._names or ())
        return {
            "model": self._model.identity,
            "preprocess": self._model.preprocess,
            "class_names": hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest(),
            "images": self._images.identity,
            "count": self.count,
            "top": self._job.top,
            "shard_size": self._job.shard_size,
            "representation": self._model.feature_name if self._job.representation else "",
        }

    def write(self, shard: Shard) -> int:
        """Writes a shard and returns how many of its images cannot be read.

        Raises:
            TrainingError: if the images or the directory do not answer.
            ValueError: if there is not a name for each class.
            OSError: if the directory cannot be written.
        """
        import pyarrow as pa
        import pyarrow.parquet

        numbers = range(shard.first, shard.stop)
        rows = [dict[str, Any](id=self._images.name(number)) for number in numbers]
        seen: set[int] = set()
        for found, images in self._readable(shard):
            seen.update(found)
            for number, values in zip(found, self._predictions(images), strict=True):
                rows[number - shard.first] |= values
        for number in sorted(set(numbers) - seen):
            image, error = self._read_again(number)
            row = rows[number - shard.first]
            row |= {"error": error} if image is None else next(self._predictions(image[None]))
        schema = pa.schema(
            {
                "id": pa.string(),
                "classes": pa.list_(pa.int32()),
                "names": pa.list_(pa.string()),
                "probabilities": pa.list_(pa.float32()),
                "representation": pa.list_(pa.float32()),
                "error": pa.string(),
            }
        )
        with atomic_file(any_path(self._job.directory) / shard.name) as temporary:
            pa.parquet.write_table(pa.Table.from_pylist(rows, schema), temporary)
        return sum("error" in row for row in rows)

    def _predictions(self, images: Tensor) -> Iterator[dict[str, Any]]:
        images = self._images.process.on_device(images)
        probabilities = probabilities_of(self._model, images, self._names)
        features = (
            self._model.features(images) if self._job.representation else [None] * len(images)
        )
        ranked = top_classes(probabilities, None, self._job.top)
        for best, feature in zip(ranked, features, strict=True):
            classes = [int(number) for number, _ in best]
            yield {
                "classes": classes,
                "names": [self._names[k] if self._names else str(k) for k in classes],
                "probabilities": [probability for _, probability in best],
                "representation": None if feature is None else np.asarray(feature, np.float32),
            }

    def _load(self, index: tf.Tensor) -> tf.Tensor:
        return self._images.process(self._images.read(index), tf.constant([0, 0], tf.int64))

    def _readable(self, shard: Shard) -> Iterator[tuple[list[int], tf.Tensor]]:
        """Yields the images that can be read, in batches, and their indices."""
        load = as_it_stands(lambda index: (index, self._load(index)))
        indices = tf.data.Dataset.range(shard.first, shard.stop)
        loaded = indices.map(load, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
        for found, images in loaded.batch(BATCH).prefetch(tf.data.AUTOTUNE):
            yield found.numpy().tolist(), images

    def _read_again(self, number: int) -> tuple[tf.Tensor | None, str]:
        """Returns an image that could not be read at first, or None and why it cannot be."""

        def read():
            try:
                return self._load(tf.constant(number, tf.int64)), ""
            except _OF_STORES:
                raise
            # Bytes in a message of TensorFlow may be no text, which is a ValueError.
            except (tf.errors.OpError, ValueError) as error:
                return None, first_line(error)

        return attempt(read, f"{self._images.name(number)} cannot be read")


@contextlib.contextmanager
def entered(predictor: Predictor, job: Job) -> Iterator[list[Shard]]:
    """Locks the directory of a job and yields the shards that are not in it yet.

    Raises:
        UsageError: if another process works in it, or it holds predictions of another job.
    """
    folder = any_path(job.directory)
    with lock(folder):
        if not is_remote(folder):
            remove_unfinished(folder)
        _check_manifest(folder, predictor.manifest)
        yield missing(job, predictor.shards)
        if not is_remote(folder):
            # Of workers that died.
            remove_unfinished(folder)


def missing(job: Job, shards: Sequence[Shard]) -> list[Shard]:
    """Returns those of the shards that are not in the directory of the job.

    Raises:
        UsageError, TrainingError: as `paths.attempt`.
    """
    folder = any_path(job.directory)
    there = attempt(lambda: {child.name for child in folder.iterdir()}, f"{folder} cannot be read")
    return [shard for shard in shards if shard.name not in there]


def _check_manifest(folder, wanted):
    """Writes what the shards depend on, or compares it with what is there."""
    file = folder / MANIFEST
    if not attempt(file.exists, f"{folder} cannot be read"):
        write_text(file, json.dumps(wanted, indent=2, sort_keys=True) + "\n")
        return
    text = attempt(file.read_text, f"{file} cannot be read")
    try:
        before = dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"Expected the description of predictions. {file} is damaged ({first_line(error)}). "
            "Name another directory."
        ) from error
    differing = sorted(key for key in wanted if before.get(key) != wanted[key])
    if differing:
        raise UsageError(
            f"{folder} holds predictions with another {', '.join(differing)}. Name another "
            "directory, or use the same options to go on."
        )
