"""The images per second of one model at any batch size, in a process that may run out of memory."""

import os
from collections.abc import Callable


def prepare(
    model: str, image_size: int, train: bool, precision: str, jit_compile: bool, repeats: int
) -> tuple[dict[str, str], Callable[[int], dict[str, float]]]:
    """Builds a model; returns the device and a function of the batch size.

    Args:
        model: a name that `keras_vit.create_model` knows.
        image_size: in pixels.
        train, jit_compile, repeats: as in `training.evaluators.speed.images_per_second`.
        precision: a Keras dtype policy.
    """
    import keras
    import tensorflow as tf

    import keras_vit
    from training.evaluators.speed import images_per_second

    keras.config.set_dtype_policy(precision)
    built = keras_vit.create_model(model, image_size=image_size)

    def measure(batch_size):
        try:
            rate = images_per_second(
                built, batch_size, train=train, repeats=repeats, jit_compile=jit_compile
            )
        except (tf.errors.ResourceExhaustedError, MemoryError):
            # End as malloc would, so that the caller meets every lack of memory alike.
            os.abort()
        return {"images_per_second": rate}

    return {"device": tf.config.list_logical_devices()[-1].device_type}, measure
