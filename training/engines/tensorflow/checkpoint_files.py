"""The checkpoints of a run as TensorFlow wrote them: which there are, and value by value."""

import glob
import os
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from training.errors import first_line
from training.io.paths import glob_safe

_INDEX = re.compile(r"checkpoint-(\d+)\.index")


def listed_paths(directory: str | os.PathLike) -> list[str]:
    """Returns the paths in the file `checkpoint` of a folder; none if it is missing or damaged."""
    try:
        state = tf.train.get_checkpoint_state(glob_safe(os.path.abspath(directory)))
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
    folder = glob_safe(os.path.abspath(directory))
    names = os.listdir(folder) if os.path.isdir(folder) else []
    steps = sorted(int(index[1]) for index in map(_INDEX.fullmatch, names) if index)
    return [os.path.join(folder, f"checkpoint-{step}") for step in steps]


def list_paths(directory: str | os.PathLike, paths: Sequence[str]) -> None:
    """Writes into the file `checkpoint` of a folder which states there are, unless it says so."""
    if listed_paths(directory) == paths:
        return
    if not paths:
        os.remove(os.path.join(directory, "checkpoint"))
        return
    # Without folders, so that the run can be moved.
    names = [os.path.basename(path) for path in paths]
    tf.compat.v1.train.update_checkpoint_state(
        glob_safe(os.path.abspath(directory)),
        names[-1],
        all_model_checkpoint_paths=names,
        # Of any time: states without one would be kept for ever.
        all_model_checkpoint_timestamps=[1.0] * len(names),
    )


def set_aside(paths: Sequence[str]) -> None:
    """Gives the files of damaged states another name."""
    for path in paths:
        for file in glob.glob(glob.escape(path) + ".*"):
            folder, name = os.path.split(file)
            os.replace(file, os.path.join(folder, f"damaged-{name}"))


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
