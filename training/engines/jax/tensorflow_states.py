"""What a run saved under TensorFlow's engine, for a run that goes on under JAX's."""

import logging
import os
from typing import NamedTuple

import numpy as np

from training.errors import TrainingError, first_line

logger = logging.getLogger("training")

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


class TensorFlowState(NamedTuple):
    """Arrays by the place of their variable.

    Attributes:
        step: updates done.
        weights: of `model.trainable_variables`.
        frozen: of the weights that do not train.
        optimizer: of `optimizer.variables`.
        numbers: float64 arrays of the loop, by name.
    """

    step: int
    weights: list[np.ndarray]
    frozen: list[np.ndarray]
    optimizer: list[np.ndarray]
    numbers: dict[str, np.ndarray]


def read_newer(
    directory: str | os.PathLike, step: int | None, *, chief: bool = True
) -> TensorFlowState | None:
    """Returns the newest state that can be read, if it is newer than JAX's.

    The chief sets damaged states aside under another name; all say so in the log.

    Args:
        directory: `checkpoints/` of the run.
        step: of JAX's newest state, or None.
        chief: whether this process sets aside.

    Raises:
        TrainingError: if there are states, none can be read, and JAX has none.
    """
    # Not above, as it brings TensorFlow.
    from training.engines.tensorflow.checkpoint_files import (
        list_paths,
        read_values,
        set_aside,
        state_paths,
    )

    paths, damaged, found = state_paths(directory), [], None
    while paths and (step is None or _step_of(paths[-1]) > step) and not found:
        try:
            found = _state(read_values(paths[-1]))
        except ValueError as error:
            logger.error(
                "The checkpoint %s cannot be read (%s). Using the one before.",
                paths[-1],
                first_line(error),
            )
            damaged.append(paths.pop())
    if damaged and not found and step is None:
        raise TrainingError(
            f"None of the checkpoints in {directory} can be read. "
            "Move the folder away to start anew."
        )
    if damaged and chief:
        set_aside(damaged)
        list_paths(directory, paths)
    return found


def _step_of(path):
    return int(path.rpartition("-")[2])


def _state(values):
    values = {
        name.removesuffix(_VALUE): value for name, value in values.items() if name.endswith(_VALUE)
    }
    # Variable 0 of an optimizer is the number of its updates.
    values["optimizer/_variables/0"] = values["optimizer/_iterations"]
    return TensorFlowState(
        int(values["optimizer/_iterations"]),
        _in_order(values, "optimizer/_trainable_variables/"),
        _in_order(values, "frozen/"),
        _in_order(values, "optimizer/_variables/"),
        {
            name: np.asarray(value, np.float64)
            for name, value in values.items()
            if "/" not in name and name != "save_counter"
        },
    )


def _in_order(values, prefix):
    names = [name for name in values if name.startswith(prefix)]
    return [values[name] for name in sorted(names, key=lambda name: int(name[len(prefix) :]))]
