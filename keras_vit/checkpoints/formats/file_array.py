"""One array of a checkpoint file and the weights that it holds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keras_vit.checkpoints.variable_names import PositionTable, Weight


def _reshape(array, weight):
    return [np.reshape(array, weight.shape)]


@dataclass(frozen=True)
class FileArray:
    """One array of a checkpoint file and the weights that it holds.

    Attributes:
        name: the array's name in the file.
        shape: its shape in the file.
        weights: the `Weight`s that it holds, in order.
        unpack: function of (array, *weights) that returns an array of the
            published shape for each of them.
    """

    name: str
    shape: tuple[int, ...]
    weights: tuple[Weight, ...]
    unpack: Callable[..., list[np.ndarray]] = _reshape

    @property
    def positions(self) -> PositionTable | str | None:
        """What it takes to resize the array, or None."""
        return self.weights[0].positions if len(self.weights) == 1 else None
