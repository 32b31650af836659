"""The engine of Keras's TensorFlow backend: updates under a distribution strategy."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from training.engines.base import (
    MASKS,
    BatchSums,
    Engine,
    MakeDataset,
    Numbers,
    PrepareImages,
    Report,
)
from training.engines.frozen_weights import frozen_weights
from training.engines.tensorflow import jax_states, strategies
from training.engines.tensorflow.evaluation_sums import SplitSums
from training.engines.tensorflow.train_step import TrainSteps
from training.engines.tensorflow.training_checkpoints import Checkpoints
from training.errors import TrainingError


class TensorFlowEngine(Engine):
    """See `Engine`. Every variable is whole on every replica.

    Attributes:
        strategy: the `tf.distribute.Strategy` of `config.strategy`.
        optimizer: made under it, from `build` on.
    """

    strategies = ("one", "mirrored", "multiworker", "tpu")

    def __init__(self, config: ConfigDict):
        super().__init__(config)
        self.strategy, self.watch = strategies.create_strategy(config)
        self.is_chief = strategies.is_chief(self.strategy)
        self.check_batch_sizes(self.strategy.num_replicas_in_sync)

    def build(
        self,
        make_model: Callable[[], keras.Model],
        make_optimizer: Callable[[keras.Model], keras.optimizers.Optimizer],
        loss: keras.losses.Loss,
        prepare_images: PrepareImages | None = None,
    ) -> None:
        config = self.config
        with self.strategy.scope():
            self.model = make_model()
            self.optimizer = make_optimizer(self.model)
            self.optimizer.build(self.model.trainable_variables)
        self._steps = TrainSteps(
            self.strategy,
            self.model,
            self.optimizer,
            loss,
            batch_size=config.batch_size,
            seed=config.seed,
            accumulation_steps=config.accumulation_steps,
            jit_compile=config.jit_compile,
            loss_limit=config.loss_limit,
            prepare_images=prepare_images,
        )

    def _restore(self, directory: str | os.PathLike) -> dict[str, np.ndarray] | None:
        state = {"model": self.model, "optimizer": self.optimizer}
        if frozen := frozen_weights(self.model):
            # A list, which names them by their place, as the optimizer does all others.
            state["frozen"] = frozen
        self._checkpoints = Checkpoints(
            directory,
            state,
            keep=self.config.keep_checkpoints,
            writes=self.is_chief,
        )
        step, failure = None, None
        try:
            step = self._checkpoints.restore()
        except TrainingError as error:
            failure = error
        numbers = self._checkpoints.numbers
        other = jax_states.restore_newer(directory, step, self.model, self.optimizer)
        if failure and not other:
            raise failure
        if other:
            step, numbers = other
            self._checkpoints.saved_step = step
        if step is not None:
            self.step = self.saved_step = step
        parts = self.strategy.num_replicas_in_sync * self.config.accumulation_steps
        if numbers is not None and MASKS not in numbers and not other and parts > 1:
            self._tell_of_other_masks()
        return numbers

    def save(self, numbers: Numbers, *, wait: bool = True) -> None:
        self._checkpoints.save({**numbers, MASKS: np.ones(())})
        self.saved_step = self._checkpoints.saved_step

    def make_batches(self, make_dataset: MakeDataset) -> Iterator[Any]:
        return iter(strategies.distribute(self.strategy, make_dataset))

    def train(
        self, batches: Iterator[Any], count: int, *, save: bool = False, stop: bool = False
    ) -> Report:
        report = self._steps(batches, count, save=save, stop=stop)
        self.step += count
        return report

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.learning_rate)

    def make_split_sums(
        self,
        batch_sums: BatchSums,
        make_dataset: MakeDataset,
        prepare_images: PrepareImages | None = None,
    ) -> Callable[[], np.ndarray]:
        return SplitSums(self.strategy, self.model, batch_sums, make_dataset, prepare_images)

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[keras.Model]:
        if not self.optimizer.use_ema:
            yield self.model
            return
        self.optimizer.swap_averages()
        try:
            yield self.model
        finally:
            self.optimizer.swap_averages()

    def gather(self, text: str) -> list[str]:
        return strategies.gather(self.strategy, text)

    def start_profile(self, directory: str | os.PathLike) -> None:
        tf.profiler.experimental.start(str(directory))

    def stop_profile(self) -> None:
        tf.profiler.experimental.stop()

    def runtime_errors(self) -> tuple[type[Exception], ...]:
        return (tf.errors.OpError,)

    def close(self) -> None:
        if self.watch:
            self.watch.stop()
            if self.is_chief:
                # The others report to the chief's server until they end.
                self.watch.wait_until_gone(5.0)
