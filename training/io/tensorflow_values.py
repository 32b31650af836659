"""Reading TensorFlow's checkpoints value by value."""

import os

import numpy as np
import tensorflow as tf

from training.errors import first_line


def read_values(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns every value of a checkpoint by its key.

    Args:
        path: of the checkpoint, without `.index`.

    Raises:
        ValueError: if it is missing or damaged.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    except Exception as error:
        # It fails in many ways, depending on which byte is damaged.
        raise ValueError(first_line(error)) from error
