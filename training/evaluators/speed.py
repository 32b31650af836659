"""Measures the images that a model takes in a second, on whatever device there is."""

import statistics
import time

import keras


def images_per_second(
    model: keras.Model,
    batch_size: int,
    *,
    train: bool = False,
    repeats: int = 5,
    jit_compile: bool = False,
) -> float:
    """Returns the rate of inference or training, from the median time of a batch.

    Args:
        model: a `keras.Model` of images, (batch, height, width, 3).
        batch_size: images per call.
        train: whether to time forward and backward pass instead of inference.
        repeats: timed calls, after one that traces and one that warms up.
        jit_compile: whether XLA compiles the call.

    Raises:
        tf.errors.ResourceExhaustedError: if a batch does not fit the device.
    """
    import tensorflow as tf

    images = tf.random.stateless_uniform((batch_size, *model.input_shape[1:]), (0, 0), -1.0, 1.0)

    def infer(images):
        return model(images, training=False)

    def update(images):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.cast(model(images, training=True), tf.float32))
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        # One number that needs every gradient, so that none is left out.
        return tf.linalg.global_norm(gradients)

    function = tf.function(update if train else infer, jit_compile=jit_compile, autograph=False)

    def seconds():
        start = time.perf_counter()
        # Copying the result to the host is what waits for the device.
        function(images).numpy()
        return time.perf_counter() - start

    seconds(), seconds()
    return batch_size / statistics.median(seconds() for _ in range(repeats))
