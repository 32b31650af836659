"""How many images a model classifies in a second, on whatever device there is."""

from __future__ import annotations

import statistics
import time


def images_per_second(
    model, batch_size: int, *, repeats: int = 5, dtype=None, jit_compile: bool = False
) -> float:
    """Returns the rate of inference, from the median time of a batch.

    Args:
        model: a `keras.Model` of images, (batch, height, width, 3).
        batch_size: images per call.
        repeats: timed calls, after one that traces and one that warms up.
        dtype: of the images; float32 by default.
        jit_compile: whether XLA compiles the model.

    Raises:
        tf.errors.ResourceExhaustedError: if a batch does not fit the device.
    """
    import tensorflow as tf

    images = tf.random.stateless_uniform(
        (batch_size, *model.input_shape[1:]), (0, 0), -1.0, 1.0, dtype or tf.float32
    )
    function = tf.function(lambda x: model(x, training=False), jit_compile=jit_compile)

    def seconds():
        start = time.perf_counter()
        # Copying the result to the host is what waits for the device.
        tf.nest.map_structure(lambda tensor: tensor.numpy(), function(images))
        return time.perf_counter() - start

    seconds(), seconds()
    return batch_size / statistics.median(seconds() for _ in range(repeats))
