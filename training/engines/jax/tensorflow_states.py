"""What a run saved under TensorFlow's engine, for a run that goes on under JAX's."""

import logging
import os
from typing import NamedTuple

import numpy as np

from training.errors import first_line

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


def newest_step(directory: str | os.PathLike) -> int | None:
    """Returns the step of the newest state in a folder, readable or not, or None."""
    # Not above, as it brings TensorFlow.
    from training.io.tensorflow_values import state_paths

    paths = state_paths(directory)
    return int(paths[-1].rpartition("-")[2]) if paths else None


def read_newest(directory: str | os.PathLike) -> TensorFlowState | None:
    """Returns the newest state that can be read, or None."""
    from training.io.tensorflow_values import read_values, state_paths

    for path in reversed(state_paths(directory)):
        try:
            values = {
                name.removesuffix(_VALUE): value
                for name, value in read_values(path).items()
                if name.endswith(_VALUE)
            }
        except ValueError as error:
            logger.error(
                "The checkpoint %s cannot be read (%s). Using the one before.",
                path,
                first_line(error),
            )
            continue
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
    return None


def _in_order(values, prefix):
    names = [name for name in values if name.startswith(prefix)]
    return [values[name] for name in sorted(names, key=lambda name: int(name[len(prefix) :]))]
