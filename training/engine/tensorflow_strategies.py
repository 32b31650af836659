"""Distribution strategies, and the cluster of `TF_CONFIG`."""

import json
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf
from ml_collections import ConfigDict

from keras_vit.training.engine.base import reason
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


class Cluster(NamedTuple):
    """The content of `TF_CONFIG`.

    Attributes:
        addresses: {(type, index): "host:port"} of every task.
        task: (type, index) of this process.
    """

    addresses: dict[tuple[str, int], str]
    task: tuple[str, int]

    @property
    def tasks(self) -> list[tuple[str, int]]:
        """Every task, the chief first; without a chief worker 0 is that."""
        return sorted(self.addresses)

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
