"""Traces the training step under a real `TPUStrategy` whose two cores are logical CPUs.

It makes TPU variables and graphs, and cannot execute them; a new TensorFlow may need other private
parts of it. Prints the counts of the operations of the graphs as a line of JSON.
"""

import collections
import json
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.tpu import tpu_system_metadata

from keras_vit.losses import build_loss
from keras_vit.training.engine import tensorflow
from keras_vit.training.tasks.classification.evaluation import counted_sums
from tests.tiny_vit import tiny_vit
from tests.training.small_engine import give_tensorflow_two_devices, random_batches, small_engine

CORES, BATCH = 2, 8
TASK = "/job:localhost/replica:0/task:0"


class Resolver:
    """Describes a host with `CORES` TPU cores."""

    task_type = task_id = None

    def get_tpu_system_metadata(self):
        kinds = [*(("TPU", core) for core in range(CORES)), ("CPU", 0)]
        names = [(f"{TASK}/device:{kind}:{core}", kind, 0) for kind, core in kinds]
        devices = [session._DeviceAttributes(*name, place) for place, name in enumerate(names)]
        # Of one host, of a topology that nobody asks for.
        return tpu_system_metadata.TPUSystemMetadata(CORES, 1, CORES, None, devices)

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
    batches = random_batches(1, BATCH // pipelines)
    batches["counted"] = np.ones((1, BATCH // pipelines), np.float32)
    return tf.data.Dataset.from_tensor_slices(batches).repeat()


def operations(function):
    graph = function.graph.as_graph_def()
    nodes = [graph.node, *(each.node_def for each in graph.library.function)]
    return collections.Counter(node.op for each in nodes for node in each)


def main():
    strategy = fake_tpu_strategy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    recipe = {"clip_norm": 1.0, "weight_decay": 0.1, "first_moment_dtype": "bfloat16"}
    changes = {"batch_size": BATCH, "strategy": "tpu", "accumulation_steps": 2, "ema_decay": 0.9}
    changes["optimizer"] = recipe | {"warmup_steps": 2}
    arguments = {"num_layers": 1, "dropout_rate": 0.1, "remat": True}
    with mock.patch.object(tensorflow, "create_strategy", lambda config: strategy):
        engine = small_engine(lambda _: tiny_vit(**arguments), **changes)
    loss = build_loss("softmax")
    model, batches = engine.model, engine.make_batches(dataset)
    train = engine.function.get_concrete_function(batches, tf.constant(4), tf.zeros([2]))

    def of_batch(batch):
        logits = tf.cast(model(batch["image"], training=False), tf.float32)
        return counted_sums(logits, batch["label"], batch["counted"], loss)

    evaluate = engine._compile_sums(of_batch).get_concrete_function(next(batches))
    variables = model.trainable_variables
    result = {"strategy": type(strategy).__name__, "replicas": strategy.num_replicas_in_sync}
    result |= {"variable": type(variables[0].value).__name__, "variables": len(variables)}
    result |= {"train": operations(train), "evaluate": operations(evaluate)}
    print(json.dumps(result))
