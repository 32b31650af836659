import types

import keras
import numpy as np
import tensorflow as tf

from keras_vit.training.config import schema
from keras_vit.training.distillation import Teachers
from keras_vit.training.engine import create_engine
from keras_vit.training.recipes.optimizer import optimizer_of
from keras_vit.training.tasks import task_of


def random_batches(batches, size):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(batches, size, 16, 16, 3)).astype("float32")
    labels = np.eye(5, dtype="float32")[rng.integers(0, 5, (batches, size))]
    return {"image": images, "label": labels}


def small_engine(make_model, prepare_images=lambda images: images, **changes):
    """Returns an engine that has built the model of a config, from one seed."""
    config = schema.complete({"dataset": "digits", "batch_size": 16, "total_steps": 40} | changes)
    schema.derive_steps(config, 1)
    engine = create_engine(config)
    classes = types.SimpleNamespace(num_classes=5, class_names=None, name="digits")
    keras.utils.set_random_seed(1)
    engine.build(
        lambda: make_model(config),
        lambda model: optimizer_of(config, model),
        lambda model: Teachers(config, classes).open(task_of(config).losses(config, None), model),
        prepare_images,
    )
    return engine


def mesh_config(mesh):
    if not mesh[0].isdigit():
        return {"strategy": mesh}
    data, fsdp = map(int, mesh.split("x"))
    return {"strategy": "sharded", "mesh": {"data": data, "fsdp": fsdp}}


def give_tensorflow_two_devices():
    """Divides the CPU in two; before TensorFlow uses it."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
