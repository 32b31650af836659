"""Predicts images: what the task of a model says of each, such as the most probable classes."""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .. import data
from ..data.traced_functions import as_it_stands
from ..errors import first_line
from ..inference.open_model import open_source
from ..io.paths import attempt
from ..io.remote_stores import local_file

# Shown where no class reaches its threshold.
NONE = "none of these classes"
BATCH = 64
# Attention rollout holds the attention of all layers.
BATCH_WITH_ATTENTION = 16
# Errors of a store that does not answer; those of damaged images are others.
_OF_STORES = (
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The prediction of one image; of one that cannot be read `id` and `error` alone."""

    id: str  # path of the photo, bytes that are not UTF-8 escaped, or TFDS's id of the example
    answer: Mapping[str, list] | None = None  # of the model's task, `Task.answers`
    # (name, probability) of the most probable classes, the best first, or what another task shows.
    ranked: Sequence[tuple[str, float]] = ()
    representation: np.ndarray | None = None  # float32, if it is asked for
    error: str | None = None  # why the image cannot be read
    # (height, width, 3) uint8, as the model saw it, if pictures are asked for.
    image: np.ndarray | None = None
    # {name: (height, width) in [0, 1]} of where the model looked, "attention", and what speaks for
    # its first class, "evidence", if pictures are asked for and these can be followed.
    maps: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


def predictions(
    source: str,
    photos: Sequence[str | os.PathLike] = (),
    *,
    dataset: str = "",
    split: str = "test",
    data_dir: str | None = None,
    top: int = 5,
) -> Iterator[Prediction]:
    """Yields what a model predicts for each photo, or each image of a split, in order.

    Args:
        source: a run directory, `.keras` file or export.
        photos: image files; instead of `dataset`.
        dataset: its name, as in `training.load_dataset`.
        split: as there.
        data_dir: as there.
        top: number of classes of each image.

    Raises:
        UsageError, ValueError, OSError: if the model or the images cannot be opened, or the model
            has no head.

    Examples:
        >>> for prediction in training.predictions("runs/photos", ["crow.jpg"]):
        ...     print(prediction.ranked)
    """
    files = [str(photo) for photo in photos]
    predictor = Predictor(source, files, dataset=dataset, split=split, data_dir=data_dir, top=top)
    yield from predictor.predict(range(predictor.count))


@dataclasses.dataclass
class Predictor:
    """Predicts images. Paths may be in a store.

    Attributes:
        name, task, preprocessing: of the model.
        count: number of images.
        shards: {name of a file: numbers of its images}, of all images, in order.

    Raises `UsageError`, `ValueError` or `OSError` if the model or the images cannot be opened, or
    the model has no head.
    """

    source: str  # of the model, as `training.inference.open_model` takes it
    photos: Sequence[str] = ()  # image files; empty for a data set
    _: dataclasses.KW_ONLY
    dataset: str = ""  # as in `training.load_dataset`, like the next two
    split: str = "test"
    data_dir: str | None = None
    # `name`, `num_classes` and `image_size` of `open_source`.
    checkpoint: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    class_names: Sequence[str] | None = None  # instead of the model's own
    top: int = 5  # classes of each image
    shard_size: int = 1_000  # images of a shard
    representation: bool = False  # whether to give what the head is put on as well
    answers: bool = True  # False gives representations alone, of models without head too

    def __post_init__(self) -> None:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(local_file(self.source))
            self._model = open_source(file, **self.checkpoint)
            # LiteRT opens its file again in each thread.
            self._copy = stack.pop_all() if file.endswith(".tflite") else None
        self.name, self.task = self._model.name, self._model.task
        if self.answers:
            self._model.require_head()
        interface = self._model.interface
        self.preprocessing = interface.preprocessing
        self._names = interface.class_names if self.class_names is None else self.class_names
        self._images = (
            data.open(self.dataset, self.split, self.data_dir)
            if self.dataset
            else data.open_files(self.photos)
        )
        self._process = self._model.operations(self._images, interface.preprocessing)
        self.count = self._images.num_examples
        size, shards = self.shard_size, -(-self.count // self.shard_size)
        self.shards = {
            f"predictions-{k:05d}-of-{shards:05d}.parquet": range(self.count)[k * size :][:size]
            for k in range(shards)
        }

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, of which another process makes its own."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def manifest(self) -> dict[str, Any]:
        """The facts that every row depends on."""
        names = "\n".join(self._names or ())
        return {
            "model": self._model.identity,
            "preprocess": self._model.interface.preprocessing,
            "class_names": hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest(),
            "images": self._images.identity,
            "count": self.count,
            "top": self.top if self.answers else 0,
            "shard_size": self.shard_size,
            "representation": self._model.feature_name if self.representation else "",
        }

    def predict(self, numbers: range, *, pictures: bool = False) -> Iterator[Prediction]:
        """Yields the prediction of each image, in order, with `pictures` its pictures as well.

        `numbers` are consecutive. Raises `TrainingError` if the images do not answer, ValueError
        if there is not a name for each class.
        """
        due = numbers.start
        for found, images in self._readable(numbers, pictures):
            for number, row in zip(found, self._rows(found, images, pictures), strict=True):
                yield from (self._read_again(each, pictures) for each in range(due, number))
                yield row
                due = number + 1
        yield from (self._read_again(each, pictures) for each in range(due, numbers.stop))

    def require_unchanged(self, numbers: range) -> None:
        """Raises `TrainingError` if one of these images was replaced since they were listed."""
        self._images.require_unchanged(slice(numbers.start, numbers.stop))

    def _load(self, index: tf.Tensor) -> tf.Tensor:
        return self._process(self._images.read(index)["image"], tf.constant([0, 0], tf.int64))

    def _readable(self, numbers, pictures) -> Iterator[tuple[list[int], tf.Tensor]]:
        """Yields the images that can be read, in batches, and their indices."""
        load = as_it_stands(lambda index: (index, self._load(index)))
        indices = tf.data.Dataset.range(numbers.start, numbers.stop)
        loaded = indices.map(load, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
        batched = loaded.batch(BATCH_WITH_ATTENTION if pictures else BATCH)
        for found, images in batched.prefetch(tf.data.AUTOTUNE):
            yield found.numpy().tolist(), images

    def _read_again(self, number, pictures) -> Prediction:
        """Returns the prediction of an image that could not be read at first."""
        name = self._images.example_id(number)

        def read():
            try:
                return self._load(tf.constant(number, tf.int64)), None
            except _OF_STORES:
                raise
            # Bytes in a message of TensorFlow may be no text, which is a ValueError.
            except (tf.errors.OpError, ValueError) as error:
                return None, first_line(error)

        image, error = attempt(read, f"{name} cannot be read")
        if image is None:
            return Prediction(name, error=error)
        return next(self._rows([number], image[None], pictures))

    def _rows(self, numbers, images, pictures) -> Iterator[Prediction]:
        model = self._model
        nothing: list[Any] = [None] * len(numbers)
        images = np.asarray(images)
        answers: list[Any] = nothing
        if self.answers:
            outputs = model(images)
            answers = self.task.answers(model, outputs, self._names, self.top)
        features = model.features(images) if self.representation else nothing
        maps, pixels = {}, images
        if pictures:
            low, high = model.interface.image_range
            pixels = np.rint((images - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
            if model.rollout:
                maps["attention"] = model.rollout(images)
            if model.class_maps:
                # Where no class reaches its threshold, the one that comes nearest.
                both = zip(answers, outputs.argmax(axis=-1).tolist(), strict=True)
                best = [(answer["classes"] or [highest])[0] for answer, highest in both]
                maps["evidence"] = model.class_maps(images, best)
        for row, (number, answer) in enumerate(zip(numbers, answers, strict=True)):
            yield Prediction(
                self._images.example_id(number),
                answer,
                self.task.ranked(answer) if answer else (),
                features[row],
                image=self.task.picture(pixels[row], answer) if pictures else None,
                maps={name: found[row] for name, found in maps.items()},
            )
