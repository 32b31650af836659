"""Reading the checkpoints of a run as TensorFlow wrote them, value by value."""

import os
import re

import numpy as np
import tensorflow as tf

from training.errors import first_line
from training.io.pattern_free import pattern_free

_INDEX = re.compile(r"checkpoint-(\d+)\.index")


def listed_paths(directory: str | os.PathLike) -> list[str]:
    """Returns the paths in the file `checkpoint` of a folder; none if it is missing or damaged."""
    try:
        state = tf.train.get_checkpoint_state(pattern_free(os.path.abspath(directory)))
    except ValueError:
        return []
    return list(state.all_model_checkpoint_paths) if state else []


def state_paths(directory: str | os.PathLike) -> list[str]:
    """Returns the paths of the states in a folder, without `.index`, the newest last.

    They are what the file `checkpoint` lists, or where that is missing or damaged, all that have
    an index, which is written last.
    """
    listed = listed_paths(directory)
    if listed:
        return listed
    folder = pattern_free(os.path.abspath(directory))
    names = os.listdir(folder) if os.path.isdir(folder) else []
    steps = sorted(int(index[1]) for index in map(_INDEX.fullmatch, names) if index)
    return [os.path.join(folder, f"checkpoint-{step}") for step in steps]


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
