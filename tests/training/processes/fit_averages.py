"""`model.fit` with averages, for each way in which Keras builds an optimizer.

Prints the largest difference from a recurrence in NumPy, by the name of the case.
"""

import contextlib
import json

import keras
import numpy as np

from keras_vit.optimizers import Momentum
from tests.training.small_engine import give_tensorflow_two_devices

BATCH, STEPS, DECAY, LIMIT = 4, 12, 0.9, 0.3
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(BATCH * STEPS, 4)).astype("float32")
LABELS = np.eye(3, dtype="float32")[rng.integers(0, 3, len(INPUTS))]
START = [rng.normal(size=shape).astype("float32") for shape in ((4, 3), (3,))]


def expected(rate, fits):
    """Returns the weights after some calls of `fit`, each of which ends with the averages."""
    weights, averages = np.array(pack(START)), np.array(pack(START))
    velocity = 0.0
    for _ in range(fits):
        for inputs, labels in zip(np.split(INPUTS, STEPS), np.split(LABELS, STEPS), strict=True):
            kernel, bias = weights[:12].reshape(4, 3), weights[12:]
            powers = np.exp(inputs @ kernel + bias)
            errors = (powers / powers.sum(-1, keepdims=True) - labels) / BATCH
            gradient = pack([inputs.T @ errors, errors.sum(0)])
            velocity = 0.9 * velocity + gradient * min(1, LIMIT / np.linalg.norm(gradient))
            weights = weights - rate * velocity
            averages = DECAY * averages + (1 - DECAY) * weights
        weights = averages
    return weights


def pack(arrays):
    return np.concatenate([np.ravel(array) for array in arrays]).astype("float64")


def fit(rate, fits, scope=contextlib.nullcontext, build=False, jit_compile=False):
    with scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.set_weights(START)
        optimizer = Momentum(rate, momentum=0.9, global_clipnorm=LIMIT, ema_decay=DECAY)
        if build:
            optimizer.build(model.trainable_variables)
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, jit_compile=jit_compile)
    for _ in range(fits):
        model.fit(INPUTS, LABELS, batch_size=BATCH, shuffle=False, verbose=0)
    return model


def main():
    cases = {"plain": {}, "built": {"build": True}, "compiled": {"jit_compile": True}}
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        give_tensorflow_two_devices()
        cases["mirrored"] = {"scope": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope}
    errors, wanted = {}, expected(0.5, 2)
    for name, options in cases.items():
        kept = fit(0.0, 1, **options).get_weights()
        assert all(map(np.array_equal, kept, START)), name
        found = pack(fit(0.5, 2, **options).get_weights())
        errors[name] = float(np.abs(found - wanted).max())
    print(json.dumps(errors))
