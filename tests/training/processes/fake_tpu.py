"""Traces the training step under a real `TPUStrategy` whose two cores are logical CPUs.

Such a strategy makes TPU variables and TPU graphs; it cannot execute them. It is built from
private parts of TensorFlow, so a new TensorFlow may need another way.
`fake_tpu.py OUTPUT` writes the counts of the operations of the graph as JSON.
"""

import collections
import json
import sys

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.tpu import tpu_system_metadata

from tests.tiny_vit import tiny_vit
from training.engines.tensorflow import strategies
from training.engines.tensorflow.evaluation_sums import SplitSums
from training.engines.tensorflow.train_step import TrainSteps
from training.evaluators import accuracy_metrics
from training.recipes.losses import build_loss
from training.recipes.optimizers import build_optimizer

CORES, BATCH = 2, 8
TASK = "/job:localhost/replica:0/task:0"


class Resolver:
    """Describes a host with `CORES` TPU cores."""

    task_type = task_id = None

    def get_tpu_system_metadata(self):
        devices = [
            session._DeviceAttributes(f"{TASK}/device:TPU:{core}", "TPU", 0, core)
            for core in range(CORES)
        ]
        devices.append(session._DeviceAttributes(f"{TASK}/device:CPU:0", "CPU", 0, CORES))
        return tpu_system_metadata.TPUSystemMetadata(
            num_cores=CORES,
            num_hosts=1,
            num_of_cores_per_host=CORES,
            topology=None,
            devices=devices,
        )

    def master(self):
        return ""


def fake_tpu_strategy():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * CORES
    )
    strategy = tf.distribute.TPUStrategy(Resolver())
    cores = np.array([[f"{TASK}/device:CPU:{core}"] for core in range(CORES)], dtype=object)
    host = f"{TASK}/device:CPU:0"
    extended = strategy.extended
    extended._tpu_devices = cores
    extended._host_device = host
    extended._device_input_worker_devices = collections.OrderedDict({host: list(cores[:, 0])})
    extended._host_input_worker_devices = collections.OrderedDict({host: [host] * CORES})
    return strategy


def dataset(pipelines, pipeline):
    share = BATCH // pipelines
    batch = {
        "image": tf.zeros([share, 16, 16, 3]),
        "label": tf.zeros([share, 5]),
        "mask": tf.ones([share]),
    }
    return tf.data.Dataset.from_tensors(batch).repeat()


def operations(graph):
    counts = collections.Counter(node.op for node in graph.node)
    for function in graph.library.function:
        counts.update(node.op for node in function.node_def)
    return counts


def main(output):
    strategy = fake_tpu_strategy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    loss = build_loss("softmax")
    with strategy.scope():
        model = tiny_vit(num_layers=1, dropout_rate=0.1, remat=True)
        optimizer = build_optimizer(
            {
                "total_steps": 10,
                "warmup_steps": 2,
                "clip_norm": 1.0,
                "weight_decay": 0.1,
                "first_moment_dtype": "bfloat16",
                "ema_decay": 0.9,
            }
        )
        optimizer.build(model.trainable_variables)
    steps = TrainSteps(
        strategy,
        model,
        optimizer,
        loss,
        batch_size=BATCH,
        accumulation_steps=2,
        jit_compile=True,
    )
    batches = iter(strategies.distribute(strategy, dataset))
    train = steps._function.get_concrete_function(batches, tf.constant(4), tf.zeros([2]))

    def batch_sums(logits, batch):
        return accuracy_metrics.counted_sums(logits, batch["label"], batch["mask"], loss)

    evaluation = SplitSums(strategy, model, batch_sums, dataset)
    evaluate = evaluation._batch.get_concrete_function(next(batches))
    result = {
        "strategy": type(strategy).__name__,
        "replicas": strategy.num_replicas_in_sync,
        "variable": type(model.trainable_variables[0].value).__name__,
        "variables": len(model.trainable_variables),
        "train": operations(train.graph.as_graph_def()),
        "evaluate": operations(evaluate.graph.as_graph_def()),
    }
    with open(output, "w") as stream:
        json.dump(result, stream)


if __name__ == "__main__":
    main(sys.argv[1])
