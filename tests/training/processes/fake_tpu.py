"""Traces the training step under a real `TPUStrategy` whose two cores are logical CPUs.

Such a strategy makes TPU variables and TPU graphs; it cannot execute them. It is built from
private parts of TensorFlow, so a new TensorFlow may need another way.
`fake_tpu.py OUTPUT` writes the counts of the operations of the graph as JSON.
"""

import collections
import json
import sys
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.tpu import tpu_system_metadata

from keras_vit.training.engine import tensorflow
from keras_vit.training.evaluators import classification
from keras_vit.training.recipes.classification_losses import build_loss
from tests.tiny_vit import tiny_vit
from tests.training.small_engine import give_tensorflow_two_devices, small_engine

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
    give_tensorflow_two_devices()
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
    recipe = {"clip_norm": 1.0, "weight_decay": 0.1, "first_moment_dtype": "bfloat16"}
    patched = (tensorflow, "create_strategy", lambda config: strategy)
    with mock.patch.object(*patched):
        engine = small_engine(
            lambda _: tiny_vit(num_layers=1, dropout_rate=0.1, remat=True),
            batch_size=BATCH,
            strategy="tpu",
            accumulation_steps=2,
            ema_decay=0.9,
            optimizer=recipe | {"warmup_steps": 2},
        )
    loss = build_loss("softmax")
    model, batches = engine.model, engine.make_batches(dataset)
    train = engine._steps.function.get_concrete_function(batches, tf.constant(4), tf.zeros([2]))

    def of_batch(batch):
        logits = tf.cast(model(batch["image"], training=False), tf.float32)
        return classification.counted_sums(logits, batch["label"], batch["mask"], loss)

    evaluate = engine._compile_sums(of_batch).get_concrete_function(next(batches))
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
