"""The largest activations of a model on images: float16 holds numbers up to 65,504."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_vit.type_hints import Tensor

FLOAT16_LARGEST = 65504.0
_BATCH = 8
# An infinite argument gives these functions their limit, which is right.
_SATURATING = ("Tanh", "Erf", "Sigmoid")


def largest_activations(model: keras.Model, images: Tensor) -> dict[str, float]:
    """Returns {name of an operation: largest absolute value of its results} on images.

    Every operation that depends on the images counts, inside of layers too: hidden layers,
    attention scores, squares in normalizations. A name begins with the paths of the layers around
    the operation. A mean counts as its sum, which LiteRT's GPU delegate keeps in float16 on some
    GPUs. Arguments of saturating functions, as inside of GELU, are left out. NaN is infinity.

    Args:
        model: on Keras's TensorFlow backend, for images in [-1, 1].
        images: (n, height, width, 3) float32 in [0, 1].
    """

    def largest(batch):
        model(batch * 2.0 - 1.0, training=False)
        operations, varying = tf.compat.v1.get_default_graph().get_operations(), {batch.ref()}
        for operation in operations:
            if not varying.isdisjoint(each.ref() for each in operation.inputs):
                varying.update(each.ref() for each in operation.outputs)
        found, saturated = {}, set()
        for operation in reversed(operations):
            users = [user for each in operation.outputs for user in each.consumers()]
            if users and all(user.type in _SATURATING or user in saturated for user in users):
                saturated.add(operation)
                continue
            for result in operation.outputs:
                if result.ref() in varying and result.dtype.is_floating:
                    largest = tf.reduce_max(tf.abs(tf.cast(result, tf.float32)))
                    if operation.type == "Mean":
                        terms = tf.size(operation.inputs[0]) / tf.size(result)
                        largest *= tf.cast(terms, tf.float32)
                    found[operation.name] = largest
        return dict(reversed(found.items()))

    spec = tf.TensorSpec((None, *images.shape[1:]), tf.float32)
    run = tf.function(largest, autograph=False).get_concrete_function(spec)
    found: dict[str, float] = {}
    for start in range(0, len(images), _BATCH):
        batch = tf.constant(images[start : start + _BATCH], tf.float32)
        for name, value in run(batch).items():
            value = float(np.nan_to_num(value, nan=math.inf, posinf=math.inf))
            found[name] = max(found.get(name, 0.0), value)
    return found
