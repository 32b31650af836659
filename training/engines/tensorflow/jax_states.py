"""What a run saved under JAX's engine, for a run that goes on under TensorFlow's."""

import os
import pathlib
from typing import cast

import keras
import numpy as np

from training.engines.frozen_weights import frozen_weights
from training.errors import TrainingError


def newest_step(directory: str | os.PathLike) -> int | None:
    """Returns the step of the newest state in a folder, readable or not, or None."""
    states = pathlib.Path(directory).glob("checkpoint-*/files.json")
    return max((int(file.parent.name.removeprefix("checkpoint-")) for file in states), default=None)


def restore_newest(
    directory: str | os.PathLike, model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> tuple[int, dict[str, np.ndarray]]:
    """Assigns the newest state that can be read to the variables of the same names.

    Returns:
        The step, and the numbers of the loop.

    Raises:
        TrainingError: if no state can be read, or not without packages that are not installed.
    """
    # JAX only reads here: the accelerators are TensorFlow's.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        from training.engines.jax import training_checkpoints
    except ModuleNotFoundError as error:
        raise TrainingError(
            f"The newest checkpoint in {directory} is of JAX's engine: reading it needs "
            f"{error.name}, which is not installed."
        ) from error

    step = cast(int, training_checkpoints.Checkpoints(directory).newest())
    arrays = training_checkpoints.read_arrays(directory, step)
    try:
        for variable in model.trainable_variables + frozen_weights(model):
            variable.assign(arrays["weights"][variable.path])
        for variable in optimizer.variables:
            variable.assign(arrays["optimizer"][variable.name])
    except KeyError as error:
        raise TrainingError(
            f"The checkpoint of step {step} in {directory} has no {error}: it is of another model."
        ) from error
    return step, {name: np.asarray(value) for name, value in arrays["numbers"].items()}
