"""Which runtime opens which exported file, as data that imports nothing."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple


class Format(NamedTuple):
    """A kind of exported file: what it is called, and whether a path is one."""

    name: str
    fits: Callable[[pathlib.Path], bool]


class Row(NamedTuple):
    """Of a runtime: the `Format.name` that it opens, the file of its class, and the class."""

    format: str
    module: str
    name: str


def _has_suffix(suffix):
    return lambda path: path.is_file() and path.suffix == suffix


SAVED_MODEL = "the directory of a SavedModel or its .tar.gz"
TFLITE = "a .tflite file"
NPZ = "an .npz checkpoint"
ONNX = "an .onnx file"
FORMATS = (
    Format(SAVED_MODEL, lambda path: (path / "saved_model.pb").is_file()),
    Format(TFLITE, _has_suffix(".tflite")),
    Format(NPZ, _has_suffix(".npz")),
    Format(ONNX, _has_suffix(".onnx")),
)

# By the names of `--runtime`. The first that opens a format is the format's default.
RUNTIMES = {
    "hub": Row(SAVED_MODEL, "hub_module", "HubModule"),
    "keras": Row(NPZ, "npz_checkpoint", "NpzCheckpoint"),
    "interpreter": Row(TFLITE, "tflite_interpreter", "TFLiteInterpreter"),
    "compiled": Row(TFLITE, "compiled_model", "CompiledOnCPU"),
    "gpu": Row(TFLITE, "compiled_model", "CompiledOnGPU"),
    "browser": Row(TFLITE, "browser", "BrowserOnCPU"),
    "browser-gpu": Row(TFLITE, "browser", "BrowserOnGPU"),
    "onnx": Row(ONNX, "onnx_runtime", "OnnxRuntime"),
}
