"""Where random numbers for the examples of a batch come from."""

import types

import keras


def batch_random() -> types.ModuleType:
    """Returns `keras.random`, or what draws the same however a batch is divided."""
    # A backend is imported only where it is Keras's.
    if keras.backend.backend() == "tensorflow":
        from keras_vit.backends.tensorflow import batch_part as tensorflow_batch_part

        return tensorflow_batch_part
    if keras.backend.backend() == "jax":
        from keras_vit.backends.jax import batch_part as jax_batch_part

        return jax_batch_part
    return keras.random
