"""An ONNX file, run by ONNX Runtime."""

import os
import pathlib
from typing import Any

import keras
import numpy as np

from export.errors import ExportError, RuntimeMissing
from export.verification.runtimes.runtime import Delegation, Runtime, in_batches


class OnnxRuntime(Runtime):
    """The runtime of an .onnx file, on the processor; see `Runtime`."""

    kind = "onnx"

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        try:
            import onnxruntime
        except ImportError as error:
            raise RuntimeMissing(
                "Expected ONNX Runtime. Install it: pip install 'keras-vit-16x16[onnx]'"
            ) from error
        self._path = pathlib.Path(path)
        try:
            self._session = onnxruntime.InferenceSession(
                self._path.read_bytes(), providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            # Damage shows as any of its own errors, which have no class in common but Exception.
            raise ExportError(
                f"{path} cannot be loaded by ONNX Runtime: {' '.join(str(error).split())[:500]}. "
                "Export the model again."
            ) from error
        inputs = self._session.get_inputs()
        outputs = self._session.get_outputs()
        if [each.name for each in inputs] != ["image"] or len(outputs) != 1:
            raise ExportError(
                "Expected a graph from `image` to one output. Received: "
                f"{path}, from {', '.join(each.name for each in inputs)} to "
                f"{', '.join(each.name for each in outputs)}. Export it with `python -m export "
                "onnx`."
            )
        self.output = outputs[0].name
        _, height, width, _ = inputs[0].shape
        self.image_size = (height, width)

    def run(self, images: np.ndarray) -> np.ndarray:
        result = in_batches(lambda batch: self._session.run(None, {"image": batch})[0], images)
        self.delegation = Delegation(", ".join(self._session.get_providers()), True)
        return result

    def costs(self, threads: int, image_size: tuple[int, int]) -> dict[str, Any]:
        return {}
