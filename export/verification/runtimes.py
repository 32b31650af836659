"""Runtimes of exported files: which there are, and opening a file in one.

A new runtime is a row of `RUNTIMES` and a function `open_NAME` in the module that the row names.
"""

import dataclasses
import importlib
import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from keras_vit.export.errors import ExportError
from keras_vit.type_hints import Tensor

if TYPE_CHECKING:
    import keras
    import numpy as np

BATCH = 8


@dataclasses.dataclass(frozen=True)
class Delegation:
    """The part of a graph that an accelerator took.

    Attributes:
        device: what it is, in its own words.
        complete: whether all of the graph runs there.
        fallbacks: the operations that do not, each "NAME: why".
        float16: outputs of its arithmetic in float16 for the same images; None where it has none.
    """

    device: str
    complete: bool
    fallbacks: tuple[str, ...] = ()
    float16: "np.ndarray | None" = None


@dataclasses.dataclass(frozen=True)
class Artifact:
    """An exported file, opened by what will run it in the end.

    Attributes:
        kind: key of `export.verification.report_and_thresholds.THRESHOLDS`.
        output: what it computes, "logits", "probabilities" or "representation".
        run: from images (n, height, width, 3) float32 in [0, 1] to the outputs (n, …), and to what
            an accelerator took, None where there is none.
        image_size: (height, width) that it takes; None for any, or where the model says it.
        output_shape: of one image, where the file says it.
        activation: "softmax" or "sigmoid", which made the probabilities.
        takes_bytes: whether it rounds pixels to bytes, as photos have them.
        has_costs: whether `subprocesses.measure` can run the file as this runtime does.
    """

    kind: str
    output: str
    run: "Callable[[np.ndarray], tuple[np.ndarray, Delegation | None]]"
    image_size: tuple[int, int] | None = None
    output_shape: tuple[int, ...] = ()
    activation: str = "softmax"
    takes_bytes: bool = False
    has_costs: bool = False


def in_batches(function: "Callable[[np.ndarray], Tensor]", images: "np.ndarray") -> "np.ndarray":
    """Returns what a function gives for all images, called on a few of them at a time."""
    import keras
    import numpy as np

    batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    return np.concatenate([keras.ops.convert_to_numpy(function(batch)) for batch in batches])


class Row(NamedTuple):
    """Of a runtime: the format that it opens, and the module of its function."""

    format: str
    module: str


SAVED_MODEL = "the directory of a SavedModel or its .tar.gz"
TFLITE, NPZ, ONNX = "a .tflite file", "an .npz checkpoint", "an .onnx file"
_SUFFIXES = {".tflite": TFLITE, ".npz": NPZ, ".onnx": ONNX}

# By the names of `--runtime`. The first that opens a format is the format's default.
RUNTIMES = {
    "hub": Row(SAVED_MODEL, "hub_npz_and_onnx"),
    "keras": Row(NPZ, "hub_npz_and_onnx"),
    "interpreter": Row(TFLITE, "tflite_files"),
    "compiled": Row(TFLITE, "tflite_files"),
    "gpu": Row(TFLITE, "tflite_files"),
    "openvino": Row(TFLITE, "tflite_files"),
    "mediapipe": Row(TFLITE, "tflite_files"),
    "browser": Row(TFLITE, "browser"),
    "browser-gpu": Row(TFLITE, "browser"),
    "onnx": Row(ONNX, "hub_npz_and_onnx"),
}


def open_artifact(
    path: str | os.PathLike, model: "keras.Model", runtime: str | None = None
) -> tuple[str, Artifact]:
    """Opens an exported file or directory in a runtime, and returns the runtime's name and it.

    Args:
        path: a file or directory that one of `RUNTIMES` opens.
        model: the model that it came from.
        runtime: key of `RUNTIMES`; None takes the default of the file's format.

    Raises:
        FileNotFoundError: if there is nothing.
        ExportError: if it is damaged or of another kind, or the runtime opens other files.
        RuntimeMissing: if the runtime is not on this machine.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"Expected an exported model. There is nothing at {path}.")
    is_module = (path / "saved_model.pb").is_file()
    format = SAVED_MODEL if is_module else _SUFFIXES.get(path.suffix if path.is_file() else "")
    if format is None:
        raise ExportError(f"Expected {SAVED_MODEL}, {TFLITE}, {NPZ} or {ONNX}. Received: {path}")
    names = [name for name, row in RUNTIMES.items() if row.format == format]
    name = names[0] if runtime is None else runtime
    if name not in names:
        raise ExportError(
            f"Expected a runtime of {format}: {', '.join(names)}. Received: {runtime!r}"
        )
    module = importlib.import_module(f"keras_vit.export.verification.{RUNTIMES[name].module}")
    return name, getattr(module, f"open_{name.replace('-', '_')}")(path, model)
