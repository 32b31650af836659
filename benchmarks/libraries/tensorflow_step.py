"""One step of a Keras model on TensorFlow."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from benchmarks.harness.case import LEARNING_RATE, MOMENTUM, Case
from benchmarks.libraries import PRODUCT_SIDE


def step_of(model: keras.Model, case: Case) -> Callable[[], Any]:
    """Returns a function without arguments that runs one step and waits for it."""
    images = tf.constant(case.images())
    if case.mode == "infer":

        @tf.function(jit_compile=case.compiled, autograph=False)
        def forward(images):
            return model(images, training=False)

        return lambda: forward(images).numpy()

    labels = tf.constant(case.labels())
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=case.compiled, autograph=False)
    def update(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return lambda: update(images, labels).numpy()


def matrix_product(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """A large matrix product in TensorFlow."""
    shape = PRODUCT_SIDE, PRODUCT_SIDE
    left, right = (tf.cast(tf.random.normal(shape), case.precision) for _ in range(2))
    return lambda: tf.linalg.matmul(left, right)[0, 0].numpy(), {"flops": 2 * PRODUCT_SIDE**3}
