"""The base of all tasks. A task is what a run learns, as one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from ml_collections import ConfigDict

from ..errors import UsageError
from ..io.printed_table import Table

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from ..engine.update import BatchSums


# Those of `eval_dataset`.
Batches: TypeAlias = Iterable[Mapping[str, Any]]


class Metric(NamedTuple):
    """One number of an evaluation."""

    name: str  # such as "top1"
    title: str  # in words
    is_share: bool = True  # a fraction, of which more is better; else less is
    of_images: bool = False  # whether it is the fraction of the images that are right
    of_more_than: int = 0  # classes; it says nothing of fewer
    panel: str = ""  # title of the chart on a run's page that shows it; empty for none

    @property
    def column(self) -> str:
        """Its name in `metrics.csv` and in a config."""
        return f"eval_{self.name}"

    @property
    def heading(self) -> str:
        """Its title above a column of numbers."""
        return f"{self.title} %" if self.is_share else self.title

    def score(self, value: float) -> float:
        """Returns the number that is larger for a better value; of a score, the value."""
        return value if self.is_share else -value

    def margin(self, value: float, count: int) -> str:
        """Returns the 95 % interval of a share of `count` images, in percent; "" of others.

        Wilson's, Probable inference (1927), for images drawn at random.
        """
        if not self.of_images or count < 1:
            return ""
        square = 1.96**2 / count
        middle = value + square / 2
        half = (square * (value * (1 - value) + square / 4)) ** 0.5
        low, high = ((middle + side * half) / (1 + square) for side in (-1, 1))
        return f"{100 * max(low, 0):.1f} to {100 * min(high, 1):.1f} %"

    def text(self, value: float) -> str:
        """Returns a value as it is shown, a share in percent; "–" where it is undefined."""
        if value != value:
            return "–"
        return f"{100 * value:.2f} %" if self.is_share else f"{value:.4g}"


# Every evaluation has it; of equal evaluations the one of less loss is better.
LOSS = Metric("loss", "loss", is_share=False, panel="loss")
# Column of the number of images that an evaluation counts.
COUNT = "eval_count"
# Key of the batches of an evaluation: 1 for examples that count, 0 for padding and others, float32.
COUNTED = "counted"


class Evaluation(NamedTuple):
    """The evaluation of a model on a split."""

    metrics: dict[str, float]  # {name: value}, as `Task.means` returns it
    # {name: table of --output}; "per_class" is also printed if it is asked for.
    tables: Mapping[str, Table] = {}
    note: str = ""  # a warning where a table is read; empty for none


class Picture(NamedTuple):
    """An image on a page."""

    image: np.ndarray  # (height, width, 1 or 3) in [0, 255]
    caption: str
    label: str  # what it shows, for those who cannot see it
    maps: Mapping[str, np.ndarray] = {}  # of `Prediction`, shown beside it in color
    kind: str = ""  # "right" or "wrong" of an answer
    is_trained: bool = False  # whether the model learned it, which is marked


class Chart(NamedTuple):
    """Points of two numbers, and the line on which both are the same."""

    title: str
    numbers: Sequence[np.ndarray]  # two, (points,) each
    names: tuple[str, str]


class Section(NamedTuple):
    """A part of a page. Texts are plain, but for the note."""

    key: str  # for links
    title: str
    note: str = ""  # HTML
    table: Table | None = None
    is_matrix: bool = False  # whether the table is of counts, colored by their part of a row
    charts: Sequence[Chart] = ()
    pictures: Sequence[Picture] = ()


def worst_section(images: np.ndarray, captions: Sequence[str], count: int) -> Section:
    """Returns the images of the largest errors among `count`, (images, height, width, channels)."""
    pictures = [Picture(image, said, said) for image, said in zip(images, captions, strict=True)]
    note = f"The largest errors among {count:,} images first."
    return Section("worst", "Worst", note, pictures=pictures)


def require_names(names: Sequence[str] | None, classes: int) -> None:
    """Raises ValueError if names of classes are known and are not one for each."""
    if names is not None and len(names) != classes:
        raise ValueError(
            f"Expected a name for each of {classes} classes. Received: {len(names)} names."
        )


def as_bytes(images: np.ndarray) -> np.ndarray:
    """Returns images in [-1, 1] as pages show them, uint8 in 0..255 of the same shape."""
    return np.rint((images + 1) * 127.5).clip(0, 255).astype(np.uint8)


class Task:
    """The task that a run learns: its output, loss, metrics and page.

    A subclass that is named in `TASKS` is a new one. `--help` shows its config keys, so its file
    imports Keras and TensorFlow within functions.
    """

    # The config key that chooses the task where it has a value; empty for that of other configs.
    chosen_by: str = ""
    classifies: str = "image"  # or "pixel", as the output of its models does
    # Its own config keys: (name, default, meaning, further arguments of `schema.Key`).
    keys: Sequence[tuple[str, Any, str, Mapping[str, Any]]] = ()
    learns: str = ""  # the kind of tables, `PhotoSet.kind`, that it alone learns
    # Whether its numbers need all outputs of a split at once: `evaluate` has them, no sums.
    of_whole_split: bool = False
    unused: Sequence[tuple[str, str]] = ()  # (keys that keep their defaults, what is expected)
    no_mixup: str = ""  # why images are never blended, as an error says it
    metrics: tuple[Metric, ...] = ()  # of its evaluations, beside `LOSS`; the first is `main`
    # {column: Arrow's name of the type of its values} of `answers`; the last is what is shown.
    answer_columns: Mapping[str, str] = {}
    # The name of `ranked`, and those of the members of its pairs.
    shown: tuple[str, str, str] = ("answers", "name", "value")
    # Whether `encode` takes labels that no operation on images changes: they may be kept encoded.
    encodes_labels_alone: bool = False

    @property
    def main(self) -> Metric:
        """The metric that evaluations and runs are compared by, the loss where it has no other."""
        return self.metrics[0] if self.metrics else LOSS

    def takes(self, kind: str) -> bool:
        """Whether it is of data of a kind, that of a `PhotoSet`, or "" of a data set of TFDS."""
        return kind == self.learns or (kind not in ("labels", "numbers") and not self.learns)

    def require_held_out(self, split: Any) -> None:
        """Raises `UsageError` if a run's evaluations on a `Split` would say nothing."""

    def encoder_arguments(self, num_classes: int) -> dict[str, Any]:
        """Returns arguments of the model of `config.model`, which may override them."""
        return {"num_classes": num_classes}

    def model_to_train(
        self, model: keras.Model, config: ConfigDict, num_classes: int
    ) -> keras.Model:
        """Returns the model that a run trains and saves, around that of `config.model`."""
        return model

    def start(self, model: keras.Model, split: Any) -> None:
        """Prepares the model to train by the `Split` that trains it."""

    def require_output(self, model: keras.Model, num_classes: int, dataset: str) -> None:
        """Raises `UsageError` unless a model's output has the shape of this task on a data set."""

    def encode(self, example: dict[str, tf.Tensor], num_classes: int) -> dict[str, tf.Tensor]:
        """Returns an example, whose image is prepared, as the objective takes it.

        In tf.data. By default it is the image alone. Labels beyond the classes that the data may
        hold become NaN or stay integers, which the pipelines refuse.
        """
        return {"image": example["image"]}

    def counts(self, example: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns whether evaluations count an encoded example, a bool scalar."""
        import tensorflow as tf

        return tf.constant(True)

    def losses(self, config: ConfigDict, split: Any) -> Callable[[keras.Model, Any], Any]:
        """Returns what updates minimize, as `Objective.losses`; `split` is the one that trains."""
        raise NotImplementedError

    def batch_sums(self, loss: str) -> BatchSums:
        """Returns the sums of a batch, see `Engine.make_split_sums`; `loss` is `config.loss`."""
        raise NotImplementedError

    def means(self, sums: Iterable[float]) -> dict[str, float]:
        """Returns {name: value} of loss, metrics and count from the sums over a split.

        Raises ValueError if nothing counts.
        """
        raise NotImplementedError

    def evaluate(self, model: Any, batches: Batches, dataset: Any, loss: str) -> Evaluation:
        """Evaluates a model of any kind on batches of `eval_dataset`.

        Args:
            model: an `ImageFunction`.
            batches: of `dataset`, a `Dataset`.
            loss: as in `batch_sums`.
        """
        return Evaluation(self.means(self.split_sums(model, batches, loss)))

    def split_sums(self, model: Any, batches: Batches, loss: str) -> np.ndarray:
        """Returns the float64 sums of `batch_sums` over all batches; arguments as of `evaluate`."""
        from keras import ops

        sums_of, total = self.batch_sums(loss), np.zeros(())

        def call(images, training):
            return ops.convert_to_tensor(model(images))

        for batch in batches:
            sums = sums_of(call, {key: np.asarray(part) for key, part in batch.items()})
            total = total + ops.convert_to_numpy(sums).astype(np.float64)
        return total

    def finishes(self, config: ConfigDict) -> bool:
        """Returns whether `finish` has anything to do at the end of a run."""
        return False

    def finish(
        self, model: Any, config: ConfigDict, batches: Batches, dataset: Any
    ) -> dict[str, str]:
        """Changes a trained model by what held-out images tell; returns {what: how}, {} if nothing.

        `model` is the run's `KerasFunction`, the others as of `evaluate`.
        """
        return {}

    def answers(
        self, model: Any, outputs: np.ndarray, names: Sequence[str] | None, top: int
    ) -> list[dict[str, list]]:
        """Returns {column: values} for each image that `predict` answers.

        Args:
            model: an `ImageFunction`.
            outputs: of the model, (images, …).
            names: of the classes, or None where they are not known.
            top: how many classes of each image.
        """
        expected = "Expected a model that predicts something of photos."
        raise UsageError(f"{expected} Received: {model.name}")

    def ranked(self, answer: Mapping[str, list]) -> list[tuple[str, float]]:
        """Returns (name, value) of an answer as it is shown: of classes the largest value first."""
        *_, values = self.answer_columns
        return [*zip(answer["names"], answer[values], strict=True)]

    def picture(self, image: np.ndarray, answer: Mapping[str, Any]) -> np.ndarray:
        """Returns the picture of an image with its answer, (height, width, 3) uint8, as `image`."""
        return image

    def page_arrays(self, source: Any, batches: Batches, dataset: Any) -> dict[str, np.ndarray]:
        """Returns the results on batches of `eval_dataset` that a run's page is drawn from.

        `source` is the run's `KerasFunction`, `dataset` a `Dataset`; {} draws none.
        """
        return {}

    def page_content(
        self, arrays: Mapping[str, np.ndarray], class_names: Sequence[str] | None
    ) -> tuple[int, list[Section]]:
        """Returns the sections of a run's page, and the number of images that they are of."""
        return 0, []
