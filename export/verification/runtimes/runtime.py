"""What every runtime of exported files has in common, and which runs which file."""

import os
import pathlib
from collections.abc import Callable
from typing import Any, Protocol

import keras
import numpy as np

from export.errors import ExportError
from keras_vit.typing import Tensor

BATCH = 8


class Runtime(Protocol):
    """An exported file, opened by what will run it in the end.

    A new runtime is a class with these members in a file of its own, and a line in `open_artifact`.

    Attributes:
        kind: key of `export.verification.thresholds.THRESHOLDS`.
        output: what it computes, "logits" or "representation".
        flex_operations: names of operations that need TensorFlow itself on a phone; None where
            that is no question.
        image_size: (height, width) that it takes; None for any, or where the model says it.
    """

    kind: str
    output: str
    image_size: tuple[int, int] | None
    flex_operations: list[str] | None

    def run(self, images: np.ndarray) -> np.ndarray:
        """Returns the outputs (n, …) of images (n, height, width, 3) float32 in [0, 1]."""

    def costs(self, threads: int, image_size: tuple[int, int]) -> dict[str, Any]:
        """Returns what `latency_and_memory.measure` does; empty for what is not run by itself."""


def open_artifact(path: str | os.PathLike, model: keras.Model) -> Runtime:
    """Opens an exported file or directory.

    Args:
        path: directory of a SavedModel, .tflite file or .npz checkpoint.
        model: the model that it came from.

    Raises:
        FileNotFoundError: if there is nothing.
        ExportError: if it is damaged or of another kind.
    """
    from export.verification.runtimes.hub_module import HubModule
    from export.verification.runtimes.npz_checkpoint import NpzCheckpoint
    from export.verification.runtimes.tflite_interpreter import TFLiteInterpreter

    path = pathlib.Path(path)
    if (path / "saved_model.pb").is_file():
        return HubModule(path)
    if path.is_file() and path.suffix == ".tflite":
        return TFLiteInterpreter(path)
    if path.is_file() and path.suffix == ".npz":
        return NpzCheckpoint(path, model)
    if not path.exists():
        raise FileNotFoundError(f"Expected an exported model. There is nothing at {path}.")
    raise ExportError(
        "Expected the directory of a SavedModel, its .tar.gz, a .tflite file or an .npz "
        f"checkpoint. Received: {path}"
    )


def in_batches(function: Callable[[np.ndarray], Tensor], images: np.ndarray) -> np.ndarray:
    """Returns what a function gives for all images, called on a few of them at a time."""
    batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    return np.concatenate([keras.ops.convert_to_numpy(function(batch)) for batch in batches])
