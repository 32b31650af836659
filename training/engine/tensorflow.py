"""The engine of Keras's TensorFlow backend: updates under a distribution strategy."""

import contextlib
import functools
import json
import logging
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_vit.backends.tensorflow import seeds_of_part
from keras_vit.type_hints import Tensor

from ..errors import UsageError, first_line
from .checkpoints import Shards, whole
from .engine_interface import Engine, MakeDataset, gather_text
from .update import Batch, Totals
from .worker_watch import Watch

logger = logging.getLogger("keras_vit")

# Compute capability. https://github.com/tensorflow/tensorflow/issues/111958
BLACKWELL = (10, 0)
# Updates from which a CPU makes up for the seconds that XLA compiles a small step.
_LONG_RUN = 1000
_CPU_INFO = pathlib.Path("/proc/cpuinfo")  # of Linux
_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


class TensorFlowEngine(Engine):
    """See `Engine`. Every variable is whole on each replica, which has an equal part of a batch."""

    strategies = ("one", "mirrored", "multiworker", "tpu")
    runtime_errors = (tf.errors.OpError,)

    def __init__(self, config: ConfigDict):
        super().__init__(config)
        self._tasks: list[str] = []
        if config.strategy == "multiworker":
            self._task, addresses = read_cluster()
            self._tasks = list(addresses)
            self.part = 0 if self._task == self._tasks[0] else None
            others = {name: each for name, each in addresses.items() if name != self._task}
            self.watch = Watch(others, config.peer_timeout)
        self.strategy = create_strategy(config)
        self.check_batch_sizes(self.strategy.num_replicas_in_sync)

    def _making(self) -> contextlib.AbstractContextManager:
        return self.strategy.scope()

    def _compile(self) -> None:
        with self.strategy.scope():
            # Every replica holds the same, so that reading them needs no communication.
            self._totals = Totals(
                tf.Variable(tf.zeros([4]), trainable=False),
                tf.Variable(-1, dtype=tf.int64, trainable=False),
            )
        self._share, self._update = self.update.share, self.replica_update
        with_xla = compiles(self.config)
        if with_xla and self.is_chief:
            logger.info("XLA compiles the step: config.jit_compile=%s", self.config.jit_compile)
        # A TPU's strategy compiles it itself.
        if with_xla and not isinstance(self.strategy, tf.distribute.TPUStrategy):
            compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
            # XLA cannot hold an all-reduce between devices of one host: there it compiles
            # everything up to the all-reduce, which is nearly all of the work.
            several = isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy)
            if several or self.strategy.num_replicas_in_sync > 1:
                self._share = compiled(self._share)
            else:
                self._update = compiled(self.replica_update)
        self.function = tf.function(self._run_updates, reduce_retracing=True, autograph=False)

    def micro_batch(self, array: Tensor, index: Tensor) -> Tensor:
        # With several workers, TensorFlow does not know the size of a batch.
        return tf.reshape(array, [self.config.accumulation_steps, -1, *array.shape[1:]])[index]

    def differentiate(
        self, loss: Callable[[], Tensor], states: Sequence[Tensor], replica: Tensor, index: Tensor
    ) -> list[Tensor]:
        part = replica * self.config.accumulation_steps + index
        seeds = [seeds_of_part(tf.cast(state, tf.int64), part) for state in states]
        variables = [variable.value for variable in self.update.trained]
        with (
            tf.GradientTape() as tape,
            keras.StatelessScope(list(zip(self.update.generators, seeds, strict=True))),
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

    def replica_update(self, batch: Batch, requests: Tensor) -> None:
        """One update, in replica context."""
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
        before = Totals(*(total.read_value() for total in self._totals))
        number = tf.cast(self.optimizer.iterations, tf.int64)
        after = self.update.apply(self._share(batch, number, replica), requests, before)
        for total, value in zip(self._totals, after, strict=True):
            total.assign(value)

    def _run_updates(self, batches, count, requests):
        sums, bad_step = self._totals
        sums.assign(tf.zeros([4]))
        bad_step.assign(-1)

        def one(number):
            batch = next(batches)
            self.strategy.run(self._update, (batch, requests))
            return (number + 1,)

        tf.while_loop(lambda number: number < count, one, (0,))
        return Totals(*(total.read_value() for total in self._totals))

    def _run(self, batches: Iterator[Any], count: int, requests: np.ndarray) -> Totals:
        return self.function(batches, tf.constant(count), tf.constant(requests))

    def _assign(self, variable: keras.Variable, read: Callable[[Any], np.ndarray]) -> None:
        variable.assign(read(None))

    def _take(self) -> list[Shards]:
        return [whole(np.array(each)) for each in self._variables().values()]

    def _distribute(self, make_dataset: MakeDataset) -> Any:
        def of_worker(context):
            dataset = make_dataset(context.num_input_pipelines, context.input_pipeline_id)
            replicas = self.strategy.num_replicas_in_sync // context.num_input_pipelines
            if replicas == 1:
                return dataset
            size = tf.nest.flatten(dataset.element_spec)[0].shape[0]
            return dataset.rebatch(size // replicas, drop_remainder=True)

        return self.strategy.distribute_datasets_from_function(of_worker)

    def _compile_sums(self, of_batch: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
        def of_replica(batch):
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, of_batch(batch))

        @tf.function(autograph=False)
        def of_all(batch):
            sums = self.strategy.run(of_replica, (batch,))
            return self.strategy.experimental_local_results(sums)[0]

        return of_all

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[keras.Model]:
        self.optimizer.swap_averages()
        try:
            yield self.model
        finally:
            self.optimizer.swap_averages()

    def gather(self, text: str) -> list[str]:
        if not self._tasks:
            return [text]
        count = len(self._tasks)

        def rows(values):
            """Returns what every worker passed, a row for each; whole numbers up to 2**24."""
            shared = np.zeros((count, len(values)), np.float32)
            # Every replica of a worker brings the same rows to the sum.
            shared[self._tasks.index(self._task)] = values
            total = self.strategy.reduce("sum", tf.constant(shared), axis=None)
            return (total.numpy() * count / self.strategy.num_replicas_in_sync).astype(int)

        return gather_text(text, rows)

    def profile(self, directory: str | os.PathLike) -> contextlib.AbstractContextManager:
        return tf.profiler.experimental.Profile(str(directory))

    def _leave(self) -> None:
        if self.watch:
            self.watch.stop()
            if self.is_chief:
                # Other workers report to the chief's server until they end.
                self.watch.wait_until_gone(5.0)


def create_strategy(config: ConfigDict) -> tf.distribute.Strategy:
    """Returns the `tf.distribute.Strategy` that `config.strategy` names.

    Create it before anything else touches TensorFlow's devices.

    * `one`: TensorFlow's default placement, on one GPU or the CPU.
    * `mirrored`: all GPUs of this host, or all its logical CPUs if it has no GPU.
    * `multiworker`: the cluster of `TF_CONFIG`.
    * `tpu`: the TPU called `config.tpu`, see `docs/tpu.md`; `UsageError` if it is out of reach.
    """
    if config.strategy == "one":
        return tf.distribute.get_strategy()
    if config.strategy == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return _mirrored(tuple(device.name for device in devices))
    if config.strategy == "multiworker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    return _tpu_strategy(config)


@functools.cache
def _mirrored(devices):
    """The one strategy of a process: the sums of two would meet, as both number theirs from 0."""
    return tf.distribute.MirroredStrategy(devices)


def compiles(config: ConfigDict) -> bool:
    """Returns whether XLA compiles the step, by `config.jit_compile`.

    On TPUs it always does. "auto" takes XLA on GPUs, as Keras does, unless it crashes there. On a
    CPU it takes XLA for long runs where `benchmarks compare_libraries` finds it faster in float32
    and bfloat16: with matrix units (AMX). Raises `UsageError` for "on" where it crashes.
    """
    if config.strategy == "tpu":
        return True
    details = tf.config.experimental.get_device_details
    gpus = [details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    crashing = [gpu for gpu in gpus if gpu.get("compute_capability", (0, 0)) >= BLACKWELL]
    if crashing and config.jit_compile == "on":
        raise UsageError(
            f"config.jit_compile: TensorFlow's XLA crashes in training on this GPU, "
            f"{crashing[0].get('device_name')}. Train with KERAS_BACKEND=jax, or with "
            "--config.jit_compile=off (docs/gpu.md)."
        )
    if config.jit_compile != "auto":
        return config.jit_compile == "on"
    if gpus:
        return not crashing
    flags = _CPU_INFO.read_text(encoding="utf-8") if _CPU_INFO.exists() else ""
    return config.total_steps >= _LONG_RUN and "amx_bf16" in flags


def _tpu_strategy(config):
    name = config.tpu or os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=config.tpu_zone or None, project=config.tpu_project or None
        )
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise UsageError(
            f"The TPU {name!r} cannot be reached: {first_line(error)}. Is this a machine with a "
            "TPU? Check config.tpu, config.tpu_zone and config.tpu_project, and that "
            "tensorflow-tpu is installed (docs/tpu.md)."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def read_cluster(environment: Mapping[str, str] = os.environ) -> tuple[str, dict[str, str]]:
    """Returns this process's task and the address of each, ("worker 1", {"worker 0": "host:port"}).

    `TF_CONFIG` names them. The chief comes first; without one, worker 0 is the chief. Raises
    `UsageError`, naming what is wrong with the variable.
    """
    try:
        content = json.loads(environment["TF_CONFIG"])
        tasks = {
            f"{kind} {index}": address
            for kind, addresses in sorted(content["cluster"].items())
            for index, address in enumerate(addresses)
        }
        own = f"{content['task']['type']} {int(content['task']['index'])}"
        for address in [tasks[own], *tasks.values()]:
            if not re.fullmatch(r".+:\d+", address):
                raise ValueError(f"{address!r} is not host:port")
        if others := {name.rpartition(" ")[0] for name in tasks} - {"chief", "worker"}:
            raise ValueError(f"it has the jobs {others}, expected worker and perhaps chief")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"strategy=multiworker reads the cluster from TF_CONFIG: {type(error).__name__}: "
            f"{error}. Expected such as {_EXAMPLE}"
        ) from error
    return own, tasks
