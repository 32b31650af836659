"""Runtimes of exported files: what they have in common, which there are, and opening a file.

A new runtime is a class with the members of `Runtime`, and a row in `RUNTIMES`.
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


class Runtime:
    """An exported file, opened by what will run it in the end; called (path, model).

    Attributes:
        kind: key of `export.verification.report.THRESHOLDS`.
        output: what it computes, "logits", "probabilities" or "representation".
        activation: "softmax" or "sigmoid", which made the probabilities.
        takes_bytes: whether it rounds pixels to bytes, as photos have them.
        has_costs: whether `subprocesses.measure` can run the file as this runtime does.
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
    activation: str = "softmax"
    takes_bytes: bool = False
    has_costs: bool = False
    flex_operations: list[str] | None = None
    image_size: tuple[int, int] | None = None
    delegation: Delegation | None = None

    def run(self, images: "np.ndarray") -> "np.ndarray":
        """Returns the outputs (n, …) of images (n, height, width, 3) float32 in [0, 1]."""
        raise NotImplementedError


def in_batches(function: "Callable[[np.ndarray], Tensor]", images: "np.ndarray") -> "np.ndarray":
    """Returns what a function gives for all images, called on a few of them at a time."""
    import keras
    import numpy as np

    batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    return np.concatenate([keras.ops.convert_to_numpy(function(batch)) for batch in batches])


class Row(NamedTuple):
    """Of a runtime: the format that it opens, the file of its class, and the class."""

    format: str
    module: str
    name: str


SAVED_MODEL = "the directory of a SavedModel or its .tar.gz"
TFLITE, NPZ, ONNX = "a .tflite file", "an .npz checkpoint", "an .onnx file"
_SUFFIXES = {".tflite": TFLITE, ".npz": NPZ, ".onnx": ONNX}

# By the names of `--runtime`. The first that opens a format is the format's default.
RUNTIMES = {
    "hub": Row(SAVED_MODEL, "hub_and_npz", "HubModule"),
    "keras": Row(NPZ, "hub_and_npz", "NpzCheckpoint"),
    "interpreter": Row(TFLITE, "litert_interpreter", "TFLiteInterpreter"),
    "compiled": Row(TFLITE, "litert_compiled_model", "CompiledOnCPU"),
    "gpu": Row(TFLITE, "litert_compiled_model", "CompiledOnGPU"),
    "openvino": Row(TFLITE, "openvino_and_mediapipe", "OpenVINO"),
    "mediapipe": Row(TFLITE, "openvino_and_mediapipe", "ImageClassifier"),
    "browser": Row(TFLITE, "browser", "BrowserOnCPU"),
    "browser-gpu": Row(TFLITE, "browser", "BrowserOnGPU"),
    "onnx": Row(ONNX, "onnx_runtime", "OnnxRuntime"),
}


def open_artifact(
    path: str | os.PathLike, model: "keras.Model", runtime: str | None = None
) -> tuple[str, Runtime]:
    """Opens an exported file or directory in a runtime, and returns the runtime's name and it.

    Args:
        path: a file or directory that one of `RUNTIMES` opens.
        model: the model that it came from.
        runtime: key of `RUNTIMES`; None takes the default of the file's format.

    Raises:
        FileNotFoundError: if there is nothing.
        ExportError: if it is of another kind, or the runtime opens other files; see `Runtime`.
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
    row = RUNTIMES[name]
    module = importlib.import_module(f"keras_vit.export.verification.{row.module}")
    return name, getattr(module, row.name)(path, model)
