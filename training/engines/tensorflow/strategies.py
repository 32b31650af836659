"""Distribution strategies by name, and each replica's share of the input."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from training.engines.base import MakeDataset, reason
from training.engines.tensorflow.tf_config import read_cluster
from training.engines.worker_watch import Watch
from training.errors import UsageError

# Compute capability. https://github.com/tensorflow/tensorflow/issues/111958
BLACKWELL = (10, 0)


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
        return tf.distribute.MirroredStrategy(_local_devices()), None
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


def _local_devices():
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]


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

    encoded = text.encode()
    lengths = rows([len(encoded)])[:, 0]
    padded = encoded.ljust(max(1, lengths.max()), b"\0")
    return [
        bytes(row[:length].tolist()).decode()
        for row, length in zip(rows(list(padded)), lengths, strict=True)
    ]
