"""A TFLite file, run by LiteRT's interpreter."""

import os
from typing import Any

import keras
import numpy as np

from export.errors import ExportError
from export.tflite.inspection import TFLiteFile
from export.verification import latency_and_memory
from export.verification.runtimes.runtime import Runtime
from training.evaluators.exported_files import runner_of_thread


class TFLiteInterpreter(Runtime):
    """The runtime of a .tflite file, one image at a time on one thread; see `Runtime`.

    Several threads may call `run` at once.

    Raises:
        ExportError: if it cannot be run, or is not from `image` to one output.
    """

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        self._path = path
        file = TFLiteFile(path)
        self.kind = file.quantization
        self.flex_operations = file.flex_operations
        self._runner = runner_of_thread(path, "serving_default", num_threads=1)
        try:
            runner = self._runner()
        except (ValueError, RuntimeError) as error:
            raise ExportError(
                f"{path} cannot be run by LiteRT: {' '.join(str(error).split())[:500]}. Export the "
                "model again."
            ) from error
        inputs = list(runner.get_input_details())
        outputs = list(runner.get_output_details())
        if inputs != ["image"] or len(outputs) != 1:
            raise ExportError(
                "Expected a signature from `image` to one output. Received: "
                f"{path}, from {', '.join(inputs)} to {', '.join(outputs)}. Export it with "
                "`python -m export tflite`."
            )
        (self.output,) = outputs
        _, height, width, _ = map(int, runner.get_input_details()["image"]["shape"])
        self.image_size = (height, width)

    def run(self, images: np.ndarray) -> np.ndarray:
        runner = self._runner()
        return np.concatenate([runner(image=image[None])[self.output] for image in images])

    def costs(self, threads: int, image_size: tuple[int, int]) -> dict[str, Any]:
        return latency_and_memory.measure(self._path, threads, image_size)
