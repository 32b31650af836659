"""The data of a run, opened once: what trains, what is evaluated, and what became of their images.

A config names them; from here on they travel as one object.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import tensorflow as tf
from ml_collections import ConfigDict

from keras_vit.training.data import pipeline
from keras_vit.training.data.dataset_table import full_name
from keras_vit.training.data.opened_dataset import Dataset, open_dataset
from keras_vit.training.data.unreadable_examples import ATTEMPTS, SkipCounter, counter_for
from keras_vit.training.errors import UsageError

logger = logging.getLogger("keras_vit")

# Images of a class below which its accuracy is not told apart from luck.
FEW_HELD_OUT = 5


class RunData:
    """The splits of a run and the preprocessing of their images.

    Args:
        config: a complete config.
        dataset: `config.dataset`, if it is open already.

    Attributes:
        dataset: the data set.
        train: the split that trains.
        preprocess: of the images that train.
        eval_preprocess: of those that are evaluated.
        skip_counter: counts the images that cannot be read; None raises their errors.

    Raises:
        UsageError: if `dataset` is another than the config names.
        NotPreparedError, ValueError: as `training.data.open`.
    """

    def __init__(self, config: ConfigDict, dataset: Dataset | None = None):
        self._config = config
        self.dataset = dataset = dataset or open_dataset(config.dataset, config.data_dir)
        if full_name(config.dataset) != dataset.name:
            raise UsageError(f"Expected config.dataset={dataset.name}. Received: {config.dataset}.")
        self.train = dataset.split(config.train_split)
        reduced = config.reduced_decoding
        self.preprocess = self.train.preprocess(config.train_preprocess, reduced.train, True)
        self.eval_preprocess = self.train.preprocess(config.eval_preprocess, reduced.eval, True)
        self.skip_counter = counter_for(config.on_error)

    @cached_property
    def description(self) -> dict[str, Any]:
        """What `Dataset.describe` says of both splits, all of which it reads."""
        return self.dataset.describe(self._config.train_split, self._config.eval_split)

    def check(self, shape: Sequence[int | None]) -> None:
        """Warns of small classes and shared images, and reads one where that shows its range.

        Raises:
            ValueError: for preprocessing to another shape than the model's (height, width,
                channels), or another range of pixels than models take.
        """
        # Photos alone are counted by class.
        classes = (self.description["eval"] or {}).get("classes", ())
        named = zip(self.dataset.class_names or (), classes, strict=False)
        if few := [f"{name} ({count})" for name, (count, _) in named if count < FEW_HELD_OUT]:
            logger.warning(
                "Few images of %s are evaluated: %s. Their accuracy says little below %d images.",
                *(self._config.eval_split, ", ".join(few[:5]), FEW_HELD_OUT),
            )
        self.preprocess.require_fit("train_preprocess", self.train, shape)
        if self._config.eval_split:
            self.eval_preprocess.require_fit("eval_preprocess", self.train, shape)
            self.dataset.split(self._config.eval_split).warn_of_shared(self.train)

    def train_batches(self, start_step: int, **changes: Any) -> Callable[..., tf.data.Dataset]:
        """Returns the function (number of workers, worker) -> its training data from a step on."""
        config = self._config
        settings = {name: config[name] for name in ("batch_size", "seed", "mixup_p", "cache")}
        settings |= {"start_step": start_step, "skip_counter": self.skip_counter, **changes}
        return partial(pipeline.train_dataset, self.train, self.preprocess, **settings)

    def eval_batches(self, workers: int, worker: int) -> tf.data.Dataset:
        """Returns one pass of a worker over `config.eval_split`."""
        split, batch_size = self._config.eval_split, self._config.eval_batch_size
        settings = {"batch_size": batch_size, "skip_counter": self.skip_counter}
        return pipeline.eval_dataset(
            self.dataset.split(split), self.eval_preprocess, workers, worker, **settings
        )

    def unreadable(self, step: int, errors: tuple[type[Exception], ...]) -> str:
        """Returns a sentence with the images of the updates from `step` on that cannot be decoded.

        "" if there are none, or they are skipped. `errors` are those that reading raises.
        """
        counter = SkipCounter()
        dataset = self.train_batches(step, skip_counter=counter)(1, 0)
        try:
            for _ in dataset.take(self._config.steps_per_call):
                pass
        except errors as error:
            if "Expected labels" in str(error):
                return ""
            return (
                f"More than {ATTEMPTS} images in a row cannot be read: keras-vit data "
                f"check {self._config.dataset} --all names each."
            )
        if self.skip_counter or not counter.examples:
            return ""
        return (
            f"What cannot be decoded: {', '.join(sorted(counter.examples))}. Remove it, or set "
            "config.on_error=skip."
        )
