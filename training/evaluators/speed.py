"""Measures the images that a model takes in a second, on whatever device there is."""

import statistics
import timeit

import keras


def images_per_second(
    model: keras.Model,
    batch_size: int,
    *,
    train: bool = False,
    repeats: int = 5,
    jit_compile: bool = False,
) -> float:
    """Returns the rate of inference, or of forward and backward pass to `train`.

    Images are (batch, height, width, 3). It is that of the median time of `repeats` calls, after
    one that traces and one that warms up. Raises `tf.errors.ResourceExhaustedError` if a batch
    does not fit the device.
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

    # Copying the result to the host is what waits for the device.
    seconds = timeit.repeat(lambda: function(images).numpy(), number=1, repeat=repeats + 2)
    return batch_size / statistics.median(seconds[2:])
