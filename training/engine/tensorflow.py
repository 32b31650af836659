"""The engine of Keras's TensorFlow backend: updates under a distribution strategy."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_vit.backends.tensorflow.batch_part import seeds_of_part
from keras_vit.training.engine import tensorflow_strategies
from keras_vit.training.engine.base import Engine, MakeDataset, gather_text
from keras_vit.training.engine.checkpoints import Shards, StoredArray, whole
from keras_vit.training.engine.step import Report, Step, Totals
from keras_vit.type_hints import Tensor


class TensorFlowStep(Step):
    """See `Step`. Every replica of a strategy has an equal part of the batch.

    Args:
        strategy: `tf.distribute.Strategy` in whose scope `model` and `optimizer` were made.
        *arguments, **options: of `Step`.
        jit_compile: whether XLA compiles the step; ignored on TPU, which always compiles.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *arguments: Any,
        jit_compile: bool = False,
        **options: Any,
    ):
        super().__init__(*arguments, **options)
        self.strategy = strategy
        with strategy.scope():
            # Every replica holds the same, so that reading them needs no communication.
            self._totals = Totals(
                tf.Variable(tf.zeros([4]), trainable=False),
                tf.Variable(-1, dtype=tf.int64, trainable=False),
            )
        self._update = self.replica_update
        if jit_compile and not isinstance(strategy, tf.distribute.TPUStrategy):
            # XLA cannot hold an all-reduce between devices of one host: there it compiles
            # everything up to the all-reduce, which is nearly all of the work.
            several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
            if several or strategy.num_replicas_in_sync > 1:
                self.share = tf.function(self.share, jit_compile=True)  # type: ignore[method-assign]
            else:
                self._update = tf.function(self.replica_update, jit_compile=True)
        self.function = tf.function(self._run, reduce_retracing=True)

    def micro_batch(self, array: Tensor, index: Tensor) -> Tensor:
        size = array.shape[0] // self.accumulation_steps
        return tf.reshape(array, [self.accumulation_steps, size, *array.shape[1:]])[index]

    def differentiate(
        self, loss: Callable[[], Tensor], states: Sequence[Tensor], replica: Tensor, index: Tensor
    ) -> list[Tensor]:
        part = replica * self.accumulation_steps + index
        seeds = [seeds_of_part(tf.cast(state, tf.int64), part) for state in states]
        variables = [variable.value for variable in self.model.trainable_variables]
        with (
            tf.GradientTape() as tape,
            keras.StatelessScope(list(zip(self.generators, seeds, strict=True))),
        ):
            value = loss()
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(value, variables, unconnected_gradients=zero)
        return [value, *map(tf.convert_to_tensor, gradients)]

    def sum_over_replicas(self, arrays: list[Tensor]) -> list[Tensor]:
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync == 1:
            return arrays
        # In one go.
        return context.all_reduce(tf.distribute.ReduceOp.SUM, arrays)

    def replica_update(self, images: Tensor, labels: Tensor, requests: Tensor) -> None:
        """One update, in replica context."""
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
        before = Totals(*(total.read_value() for total in self._totals))
        after = self.update(images, labels, requests, before, replica)
        for total, value in zip(self._totals, after, strict=True):
            total.assign(value)

    def _run(self, batches, count, requests):
        sums, bad_step = self._totals
        sums.assign(tf.zeros([4]))
        bad_step.assign(-1)
        for _ in tf.range(count):
            batch = next(batches)
            self.strategy.run(self._update, (batch["image"], batch["label"], requests))
        return Totals(*(total.read_value() for total in self._totals))

    def __call__(
        self, batches: Iterator[Any], count: int, *, save: bool = False, stop: bool = False
    ) -> Report:
        requests = tf.constant([save, stop], tf.float32)
        return self.function(batches, tf.constant(count), requests).report(count)


class TensorFlowEngine(Engine):
    """See `Engine`. Every variable is whole on every replica.

    Attributes:
        strategy: the `tf.distribute.Strategy` of `config.strategy`.
    """

    strategies = ("one", "mirrored", "multiworker", "tpu")
    runtime_errors = (tf.errors.OpError,)

    def __init__(self, config: ConfigDict):
        super().__init__(config)
        self.strategy, self.watch = tensorflow_strategies.create_strategy(config)
        several = config.strategy == "multiworker"
        self._cluster = tensorflow_strategies.read_cluster() if several else None
        if self._cluster and self._cluster.task != self._cluster.tasks[0]:
            self.part = None
        self.check_batch_sizes(self.strategy.num_replicas_in_sync)

    def _making(self) -> contextlib.AbstractContextManager:
        return self.strategy.scope()

    def _make_step(self, *arguments: Any, **options: Any) -> Step:
        options["jit_compile"] = self.config.jit_compile
        return TensorFlowStep(self.strategy, *arguments, **options)

    def _place(self, arrays: Sequence[StoredArray]) -> None:
        for variable, array in zip(self._variables().values(), arrays, strict=True):
            variable.assign(array.read())

    def _take(self) -> list[Shards]:
        return [whole(np.array(each)) for each in self._variables().values()]

    def _distribute(self, make_dataset: MakeDataset) -> Any:
        def of_worker(context):
            dataset = make_dataset(context.num_input_pipelines, context.input_pipeline_id)
            replicas = self.strategy.num_replicas_in_sync // context.num_input_pipelines
            return dataset if replicas == 1 else dataset.flat_map(lambda b: _split(b, replicas))

        return self.strategy.distribute_datasets_from_function(of_worker)

    def _compile_sums(self, of_batch: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
        def of_replica(batch):
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, of_batch(batch))

        @tf.function
        def of_all(batch):
            sums = self.strategy.run(of_replica, (batch,))
            return self.strategy.experimental_local_results(sums)[0]

        return of_all

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[keras.Model]:
        # Twice, they are as before.
        swap = self.optimizer.swap_averages if self.optimizer.averages else lambda: None
        swap()
        try:
            yield self.model
        finally:
            swap()

    def gather(self, text: str) -> list[str]:
        if not self._cluster:
            return [text]
        tasks, own = self._cluster.tasks, self._cluster.task

        def rows(values):
            """Returns what every worker passed, a row for each; whole numbers up to 2**24."""
            shared = np.zeros((len(tasks), len(values)), np.float32)
            # Every replica of a worker brings the same rows to the sum.
            shared[tasks.index(own)] = values
            total = self.strategy.reduce("sum", tf.constant(shared), axis=None)
            return (total.numpy() * len(tasks) / self.strategy.num_replicas_in_sync).astype(int)

        return gather_text(text, rows)

    def profile(self, directory: str | os.PathLike) -> contextlib.AbstractContextManager:
        return tf.profiler.experimental.Profile(str(directory))

    def _leave(self) -> None:
        if self.watch:
            self.watch.stop()
            if self.is_chief:
                # The others report to the chief's server until they end.
                self.watch.wait_until_gone(5.0)


def _split(batch, parts):
    """Returns a dataset of `parts` equal batches, in the order of the examples."""
    return tf.data.Dataset.from_tensor_slices(
        tf.nest.map_structure(
            lambda tensor: tf.reshape(tensor, [parts, tensor.shape[0] // parts, *tensor.shape[1:]]),
            batch,
        )
    )
