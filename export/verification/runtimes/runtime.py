"""What every runtime of exported files has in common."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit.typing import Tensor

BATCH = 8


@dataclasses.dataclass(frozen=True)
class Delegation:
    """How much of a graph an accelerator took.

    Attributes:
        device: what it is, in its own words.
        complete: whether all of the graph runs there.
        fallbacks: the operations that do not, each "NAME: why".
    """

    device: str
    complete: bool
    fallbacks: tuple[str, ...] = ()


class Runtime:
    """An exported file, opened by what will run it in the end.

    A new runtime is a class with these members in a file of its own, and a row in
    `export.verification.runtimes.runtime_table.RUNTIMES`.

    Args:
        path: the file or directory.
        model: the model that it came from.

    Attributes:
        kind: key of `export.verification.thresholds.THRESHOLDS`.
        output: what it computes, "logits" or "representation".
        flex_operations: names of operations that need TensorFlow itself on a phone; None where
            that is no question.
        image_size: (height, width) that it takes; None for any, or where the model says it.
        delegation: what an accelerator took of the last `run`; None where there is none.

    Raises:
        ExportError: if the file is damaged or of another kind.
        RuntimeMissing: if the runtime is not on this machine.
    """

    kind: str
    output: str
    flex_operations: list[str] | None = None
    image_size: tuple[int, int] | None = None
    delegation: Delegation | None = None

    def __init__(self, path: str | os.PathLike, model: keras.Model):
        raise NotImplementedError

    def run(self, images: np.ndarray) -> np.ndarray:
        """Returns the outputs (n, …) of images (n, height, width, 3) float32 in [0, 1]."""
        raise NotImplementedError

    def run_float16(self, images: np.ndarray) -> np.ndarray | None:
        """Returns what `run` does in the accelerator's float16 arithmetic, if it has any."""
        return None

    def costs(self, threads: int, image_size: tuple[int, int]) -> dict[str, Any]:
        """Returns what `latency_and_memory.measure` does; empty for what is not run by itself."""
        return {}


def in_batches(function: Callable[[np.ndarray], Tensor], images: np.ndarray) -> np.ndarray:
    """Returns what a function gives for all images, called on a few of them at a time."""
    batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    return np.concatenate([keras.ops.convert_to_numpy(function(batch)) for batch in batches])
