"""A TFLite file, run by LiteRT's interpreter."""

import os

import keras
import numpy as np

from keras_vit.export.errors import damage_refused
from keras_vit.export.tflite.flatbuffer import TFLiteFile
from keras_vit.export.verification.runtimes import Runtime, require_signature
from keras_vit.training.evaluators.exported_files import runner_of_thread


class TFLiteInterpreter(Runtime):
    """The runtime of a .tflite file, one image at a time on one thread; see `Runtime`.

    Several threads may call `run` at once.

    Raises:
        ExportError: if it cannot be run, or is not from `image` to one output.
    """

    has_costs = True

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        self._path = path
        file = TFLiteFile(path)
        self.kind = file.quantization
        self.flex_operations = file.flex_operations
        self._runner = runner_of_thread(path, "serving_default", num_threads=1)
        with damage_refused(f"{path} cannot be run by LiteRT"):
            runner = self._runner()
        inputs, outputs = runner.get_input_details(), runner.get_output_details()
        require_signature(path, [*inputs], [*outputs])
        (self.output,) = outputs
        _, height, width, _ = map(int, inputs["image"]["shape"])
        self.image_size = (height, width)

    def run(self, images: np.ndarray) -> np.ndarray:
        runner = self._runner()
        return np.concatenate([runner(image=image[None])[self.output] for image in images])
