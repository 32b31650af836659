"""What a run saved under JAX's engine, for a run that goes on under TensorFlow's."""

import os
import pathlib
from typing import cast

import keras
import numpy as np

from training.engines.frozen_weights import frozen_weights
from training.errors import TrainingError


def restore_newer(
    directory: str | os.PathLike,
    step: int | None,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
) -> tuple[int, dict[str, np.ndarray]] | None:
    """Assigns the newest state that can be read to the variables of the same names.

    Args:
        directory: `checkpoints/` of the run.
        step: of TensorFlow's newest state, or None; states that are not newer count for nothing.
        model: whose weights are assigned.
        optimizer: of the model, built.

    Returns:
        The step, and the numbers of the loop; None if no state is newer.

    Raises:
        TrainingError: if a newer state cannot be read for lack of packages, or is of another
            model; if none can be read, and TensorFlow has none either.
    """
    before = -1 if step is None else step
    if _newest_step(directory) <= before:
        return None
    # JAX only reads here: the accelerators are TensorFlow's.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        from training.engines.jax import training_checkpoints
    except ModuleNotFoundError as error:
        raise TrainingError(
            f"The newest checkpoint in {directory} is of JAX's engine: reading it needs "
            f"{error.name}, which is not installed."
        ) from error

    try:
        newest = cast(int, training_checkpoints.Checkpoints(directory).newest())
    except TrainingError:
        if step is None:
            raise
        return None
    if newest <= before:
        return None
    arrays = training_checkpoints.read_arrays(directory, newest)
    try:
        for variable in model.trainable_variables + frozen_weights(model):
            variable.assign(arrays["weights"][variable.path])
        for variable in optimizer.variables:
            variable.assign(arrays["optimizer"][variable.name])
    except KeyError as error:
        raise TrainingError(
            f"The checkpoint of step {newest} in {directory} has no {error}: it is of another "
            "model."
        ) from error
    return newest, {name: np.asarray(value) for name, value in arrays["numbers"].items()}


def _newest_step(directory):
    """Returns the step of the newest state in a folder, readable or not, or -1."""
    states = pathlib.Path(directory).glob("checkpoint-*/files.json")
    return max((int(file.parent.name.removeprefix("checkpoint-")) for file in states), default=-1)
