"""Writing a SavedModel, with errors of a disk as such."""

import os
from typing import Any

import tensorflow as tf

from training.errors import first_line


def write_saved_model(root: Any, directory: str | os.PathLike, **options: Any) -> None:
    """Writes `root` as `tf.saved_model.save` does, with its options.

    Raises:
        OSError: if it cannot be written, where TensorFlow raises errors of its own.
    """
    try:
        tf.saved_model.save(root, str(directory), **options)
    except tf.errors.OpError as error:
        raise OSError(f"The SavedModel cannot be written: {first_line(error)}") from error
