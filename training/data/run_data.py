"""The data of a run: the splits that its config names, and the preprocessing of their images."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from ml_collections import ConfigDict

from keras_vit.models.image_model import encoder_of

from ..errors import UsageError
from ..tasks import TASKS, task_of
from .decoded_image_cache import keep_prepared
from .opened_dataset import Dataset, open_dataset
from .sets.known_datasets import full_name
from .skip_unreadable import ATTEMPTS, SkipCounter, counter_for
from .tf_data_batches import batch_operations, eval_dataset, refuse_mixup, train_dataset

logger = logging.getLogger("keras_vit")

# Images of a class below which its accuracy is not told apart from luck.
_FEW_HELD_OUT = 5


class RunData:
    """The splits of a run and the preprocessing of their images.

    Args:
        config: a complete config.
        dataset: `config.dataset`, if it is open already.

    Attributes:
        dataset, few_shot_sets: the data sets of `config.dataset` and `config.few_shot`.
        train, eval: the splits that are trained on and evaluated; `eval` may be None.
        preprocess, eval_preprocess: of their images.
        skip_counter: counts the images that cannot be read; None raises their errors.

    Raises:
        UsageError: if `dataset` is another than the config names.
        NotPreparedError, ValueError: as `open`.
    """

    def __init__(self, config: ConfigDict, dataset: Dataset | None = None):
        self._config, self._task = config, task_of(config)
        self.dataset = dataset = dataset or open_dataset(config.dataset, config.data_dir)
        if full_name(config.dataset) != dataset.name:
            raise UsageError(f"Expected config.dataset={dataset.name}. Received: {config.dataset}.")
        self.train = dataset.split(config.train_split)
        self.eval = dataset.split(config.eval_split) if config.eval_split else None
        self.few_shot_sets = [
            dataset if full_name(name) == dataset.name else open_dataset(name, config.data_dir)
            for name in filter(None, config.few_shot.datasets.split(","))
        ]
        reduced = config.reduced_decoding
        self.preprocess = self.train.preprocess(config.train_preprocess, reduced.train, True)
        if batch_operations(self.preprocess, config.mixup_p) and self._task.no_mixup:
            raise UsageError(
                f"{self._task.no_mixup}. Received: config.mixup_p={config.mixup_p}, "
                f"config.train_preprocess={config.train_preprocess!r}."
            )
        self.eval_preprocess = self.train.preprocess(config.eval_preprocess, reduced.eval, True)
        refuse_mixup(self.eval_preprocess, "in config.eval_preprocess")
        self.skip_counter = counter_for(config.on_error)

    def train_batches(
        self, start_step: int, **changes: Any
    ) -> Callable[[int, int], tf.data.Dataset]:
        """Returns the function (number of workers, worker) -> its training data from a step on."""
        config = self._config
        settings = {name: config[name] for name in ("batch_size", "seed", "mixup_p", "cache")}
        settings |= {"start_step": start_step, "skip_counter": self.skip_counter, **changes}
        settings["task"] = self._task
        return functools.partial(train_dataset, self.train, self.preprocess, **settings)

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        """What `Dataset.describe` says of both splits, all of which it reads."""
        return self.dataset.describe(self._config.train_split, self._config.eval_split)

    def check(self, model: keras.Model) -> None:
        """Warns of small classes and shared images, and reads one where that shows its range.

        Raises:
            UsageError: for a model whose output is not that of the task, or whose features few-shot
                evaluation does not take.
            ValueError: for preprocessing to another shape than the model's (height, width,
                channels), or another range of pixels than models take.
        """
        kind, task = self.dataset.kind, self._task
        if kind in ("labels", "numbers") and not task.takes(kind):
            keys = [each.chosen_by for each in TASKS if each.learns == kind]
            raise UsageError(
                f"config.{' '.join(keys)}: expected a loss, as {self.dataset.name} has {kind} "
                "of each photo: --config=own_photos:TABLE or own_photos:labels:FOLDER sets it."
            )
        if self.eval:
            task.require_held_out(self.eval)
        task.require_output(model, self.dataset.num_classes, self._config.dataset)
        features = encoder_of(model).endpoints["representation"]
        shape = model.input_shape[1:]
        if self.few_shot_sets and (len(features.shape), shape[-1]) != (2, 3):
            raise UsageError(
                "config.few_shot.datasets: expected a model of color images whose classifier "
                f"pools. Received: images of {shape}, features of {features.shape}."
            )
        self.preprocess.require_fit("train_preprocess", self.train, shape)
        # Later commands read it, where the run evaluates nothing too.
        if self.eval or self._config.eval_preprocess:
            self.eval_preprocess.require_fit("eval_preprocess", self.train, shape)
            if drawn := self.eval_preprocess.random:
                logger.warning(
                    "config.eval_preprocess: %s draw at random in training; evaluations and "
                    "predictions use one draw for each place. Use a text without them.",
                    ", ".join(drawn),
                )
        if not self.eval:
            return
        self.eval.warn_of_shared(self.train)
        # Photos alone are counted by class.
        classes = self.eval.fingerprint.get("classes", ())
        named = zip(self.dataset.class_names or (), classes, strict=False)
        if few := [f"{name} ({count})" for name, (count, _) in named if count < _FEW_HELD_OUT]:
            logger.warning(
                "Few images of %s are evaluated: %s. Their accuracy says little below %d images.",
                *(self.eval.text, ", ".join(few[:5]), _FEW_HELD_OUT),
            )

    def eval_batches(self, workers: int, worker: int) -> tf.data.Dataset:
        """Returns one pass of a worker over `config.eval_split`."""
        settings = {"batch_size": self._config.eval_batch_size, "skip_counter": self.skip_counter}
        settings["task"] = self._task
        split = self.dataset.split(self._config.eval_split)
        dataset = eval_dataset(split, self.eval_preprocess, workers, worker, **settings)
        return dataset if self._config.cache == "off" else keep_prepared(dataset, split)

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
