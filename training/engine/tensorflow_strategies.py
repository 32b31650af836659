"""Distribution strategies, the cluster of `TF_CONFIG`, and each replica's share of the input."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_vit.training.engine.base import MakeDataset, gather_text, reason
from keras_vit.training.engine.worker_watch import Watch
from keras_vit.training.errors import UsageError

# Compute capability. https://github.com/tensorflow/tensorflow/issues/111958
BLACKWELL = (10, 0)
_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def create_strategy(config: ConfigDict) -> tuple[tf.distribute.Strategy, Watch | None]:
    """Returns the `tf.distribute.Strategy` that `config.strategy` names, and a watch or None.

    Create it before anything else touches TensorFlow's devices.

    * `one`: TensorFlow's default placement, on one GPU or the CPU.
    * `mirrored`: all GPUs of this host, or all its logical CPUs if it has no GPU.
    * `multiworker`: the cluster of `TF_CONFIG`; the watch ends the process if a peer dies.
    * `tpu`: the TPU called `config.tpu`, see `docs/tpu.md`.

    Args:
        config: a complete config.

    Raises:
        UsageError: if the TPU or the cluster cannot be reached as described, or for XLA on a GPU
            on which TensorFlow's crashes.
    """
    if config.jit_compile:
        _check_xla_runs()
    if config.strategy == "one":
        return tf.distribute.get_strategy(), None
    if config.strategy == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices]), None
    if config.strategy == "multiworker":
        watch = Watch(read_cluster().others, config.peer_timeout).start()
        return tf.distribute.MultiWorkerMirroredStrategy(), watch
    return _tpu_strategy(config), None


def _check_xla_runs():
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        if details.get("compute_capability", (0, 0)) >= BLACKWELL:
            raise UsageError(
                f"config.jit_compile: TensorFlow's XLA crashes in training on this GPU, "
                f"{details.get('device_name', gpu.name)}. Train with KERAS_BACKEND=jax, or with "
                "--config.jit_compile=False (docs/gpu.md)."
            )


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
            f"The TPU {name!r} cannot be reached: {reason(error)}. Is this a machine with a TPU? "
            "Check config.tpu, config.tpu_zone and config.tpu_project, and that tensorflow-tpu "
            "is installed (docs/tpu.md)."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the run's files."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    return (resolver.task_type, resolver.task_id) == ("chief", 0) or (
        "chief" not in resolver.cluster_spec().jobs and resolver.task_id == 0
    )


def distribute(strategy: tf.distribute.Strategy, make_dataset: MakeDataset) -> Iterable[Any]:
    """Returns the input of every replica, as a distributed dataset.

    Args:
        strategy: `tf.distribute.Strategy`.
        make_dataset: function of (num_input_pipelines, input_pipeline_id) that returns the
            dataset of one worker, whose batches hold the examples of all its replicas.
    """

    def dataset_of_worker(context):
        dataset = make_dataset(context.num_input_pipelines, context.input_pipeline_id)
        replicas = strategy.num_replicas_in_sync // context.num_input_pipelines
        return dataset if replicas == 1 else dataset.flat_map(lambda batch: _split(batch, replicas))

    return strategy.distribute_datasets_from_function(dataset_of_worker)


def _split(batch, parts):
    """Returns a dataset of `parts` equal batches, in the order of the examples."""
    return tf.data.Dataset.from_tensor_slices(
        tf.nest.map_structure(
            lambda tensor: tf.reshape(tensor, [parts, tensor.shape[0] // parts, *tensor.shape[1:]]),
            batch,
        )
    )


def gather(strategy: tf.distribute.Strategy, text: str) -> list[str]:
    """Waits for all workers and returns the text of each, in the order of their tasks."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return [text]
    cluster = read_cluster()
    tasks = sorted(cluster.addresses)

    def rows(values):
        """Returns what every worker passed, a row for each; whole numbers up to 2**24."""
        own = np.zeros((len(tasks), len(values)), np.float32)
        # Every replica of a worker brings the same rows to the sum.
        own[tasks.index(cluster.task)] = values
        total = strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(own), axis=None)
        return (total.numpy() * len(tasks) / strategy.num_replicas_in_sync).astype(int)

    return gather_text(text, rows)


class Cluster(NamedTuple):
    """The content of `TF_CONFIG`.

    Attributes:
        addresses: {(type, index): "host:port"} of every task.
        task: (type, index) of this process.
    """

    addresses: dict[tuple[str, int], str]
    task: tuple[str, int]

    @property
    def others(self) -> dict[str, tuple[str, int]]:
        """{"worker 1 (host:port)": (host, port)} of all other tasks."""
        result = {}
        for task, address in self.addresses.items():
            if task != self.task:
                host, port = address.rsplit(":", 1)
                result[f"{task[0]} {task[1]} ({address})"] = (host, int(port))
        return result


def read_cluster(environment: Mapping[str, str] = os.environ) -> Cluster:
    """Returns the `Cluster` described by the environment variable `TF_CONFIG`.

    Raises:
        UsageError: naming what is wrong with the variable.
    """
    text = environment.get("TF_CONFIG", "")
    if not text:
        raise _wrong("it is not set")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(f"it is not JSON ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("cluster"), dict):
        raise _wrong('it has no "cluster"')
    addresses = {}
    for kind, tasks in content["cluster"].items():
        if kind not in ("chief", "worker"):
            raise _wrong(f'the cluster has a job {kind!r}, expected "worker" and perhaps "chief"')
        if not isinstance(tasks, list):
            raise _wrong(f"cluster.{kind} is not a list of addresses")
        for index, address in enumerate(tasks):
            if not re.fullmatch(r".+:\d+", str(address)):
                raise _wrong(f"{address!r} is not host:port")
            addresses[kind, index] = address
    if len(set(addresses.values())) < len(addresses):
        raise _wrong("two tasks have the same address")
    task = content.get("task")
    if not isinstance(task, dict) or "type" not in task or "index" not in task:
        raise _wrong('it has no "task" with "type" and "index"')
    try:
        own = (task["type"], int(task["index"]))
    except (TypeError, ValueError):
        raise _wrong(f"task index {task['index']!r} is not a number") from None
    if own not in addresses:
        raise _wrong(f"the cluster has no {own[0]} {own[1]}, which it says this process is")
    return Cluster(addresses, own)


def _wrong(what):
    return UsageError(
        f"strategy=multiworker reads the cluster from TF_CONFIG: {what}. Example: {_EXAMPLE}"
    )
