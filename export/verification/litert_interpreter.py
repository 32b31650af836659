"""A TFLite file, run by LiteRT's interpreter."""

import os

import keras
import numpy as np

from keras_vit.export.errors import damage_refused
from keras_vit.export.tflite.flatbuffer import TFLiteFile
from keras_vit.export.verification.runtimes import Runtime
from keras_vit.training.evaluators.tflite_files import TFLiteFunction


class TFLiteInterpreter(Runtime):
    """The runtime of a .tflite file, one image at a time on one thread; see `Runtime`.

    Raises:
        ExportError: if it cannot be run, or is not from `image` to one output.
    """

    has_costs = True
    runtime = "litert"

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        self._path = path
        file = TFLiteFile(path)
        self.kind = file.quantization
        self.flex_operations = file.flex_operations
        if "LOGISTIC" in file.operations[-2:]:  # a quantized file ends with DEQUANTIZE
            self.activation = "sigmoid"
        with damage_refused(f"{path} cannot be run"):
            self._function = TFLiteFunction(path, self.runtime, threads=1)
        self.output, self.image_size = self._function.output, self._function.image_shape[:2]

    def run(self, images: np.ndarray) -> np.ndarray:
        return self._function(images)
