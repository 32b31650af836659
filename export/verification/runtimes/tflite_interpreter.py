"""A TFLite file, run by LiteRT's interpreter."""

import os
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from export.errors import ExportError
from export.tflite.inspection import TFLiteFile
from export.verification import latency_and_memory


class TFLiteInterpreter:
    """The runtime of a .tflite file, one image at a time on one thread; see `Runtime`.

    Raises:
        ExportError: if it cannot be run, or is not from `image` to one output.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = path
        file = TFLiteFile(path)
        self.kind = file.quantization
        self.flex_operations: list[str] | None = file.flex_operations
        try:
            self._interpreter = Interpreter(str(path), num_threads=1)
            self._runner = self._interpreter.get_signature_runner("serving_default")
        except (ValueError, RuntimeError) as error:
            raise ExportError(
                f"{path} cannot be run by LiteRT: {' '.join(str(error).split())[:500]}. Export the "
                "model again."
            ) from error
        inputs = list(self._runner.get_input_details())
        outputs = list(self._runner.get_output_details())
        if inputs != ["image"] or len(outputs) != 1:
            raise ExportError(
                "Expected a signature from `image` to one output. Received: "
                f"{path}, from {', '.join(inputs)} to {', '.join(outputs)}. Export it with "
                "`python -m export tflite`."
            )
        (self.output,) = outputs
        _, height, width, _ = map(int, self._runner.get_input_details()["image"]["shape"])
        self.image_size: tuple[int, int] | None = (height, width)

    def run(self, images: np.ndarray) -> np.ndarray:
        results = [self._runner(image=image[None])[self.output] for image in images]
        return np.concatenate(results)

    def costs(self, threads: int, image_size: tuple[int, int]) -> dict[str, Any]:
        return latency_and_memory.measure(self._path, threads, image_size)
