"""Where random numbers for the examples of a batch come from."""

import types

import keras


def batch_random() -> types.ModuleType:
    """Returns `keras.random`, or what draws the same however devices divide the batch.

    JAX divides arrays of random numbers as it divides the batch. Under TensorFlow every device
    draws its own, and the seed says for which part of the batch.
    """
    if keras.backend.backend() != "tensorflow":
        return keras.random
    # TensorFlow is imported only where it is the backend.
    from keras_vit.backends.tensorflow import batch_part

    return batch_part
