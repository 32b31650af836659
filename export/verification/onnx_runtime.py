"""An ONNX file, run by ONNX Runtime."""

import os
import pathlib

import keras
import numpy as np

from keras_vit.export.errors import ExportError, damage_refused, imported
from keras_vit.export.verification.runtimes import Delegation, Runtime, in_batches


class OnnxRuntime(Runtime):
    """The runtime of an .onnx file, on the processor; see `Runtime`."""

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        onnxruntime = imported("onnxruntime", "onnx")
        self._path = path
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # its errors are raised as well
        with damage_refused(f"{path} cannot be loaded by ONNX Runtime"):
            self._session = onnxruntime.InferenceSession(
                pathlib.Path(path).read_bytes(), options, providers=["CPUExecutionProvider"]
            )
            inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
            given, made = ([each.name for each in ends] for ends in (inputs, outputs))
            if given != ["image"] or len(made) != 1:
                raise ExportError(
                    f"Expected a file from `image` to one output. Received: {path}, from "
                    f"{', '.join(given)} to {', '.join(made)}. Write it with `keras-vit export "
                    "onnx`."
                )
            self.output = made[0]
            _, height, width, _ = inputs[0].shape
            onnx = imported("onnx", "onnx")
            types = {each.data_type for each in onnx.load(path).graph.initializer}
        self.kind = "float16" if onnx.TensorProto.FLOAT16 in types else "onnx"
        self.image_size = (height, width)

    def run(self, images: np.ndarray) -> np.ndarray:
        with damage_refused(f"{self._path} cannot be run by ONNX Runtime"):
            result = in_batches(lambda batch: self._session.run(None, {"image": batch})[0], images)
        self.delegation = Delegation(", ".join(self._session.get_providers()), True)
        return result
