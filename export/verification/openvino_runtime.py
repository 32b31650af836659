"""A TFLite file, run by OpenVINO."""

import os

import keras

from keras_vit.export.errors import imported
from keras_vit.export.verification.litert_interpreter import TFLiteInterpreter
from keras_vit.export.verification.runtimes import Delegation


class OpenVINO(TFLiteInterpreter):
    """The runtime of a .tflite file in OpenVINO, on the processor; see `Runtime`.

    Raises:
        RuntimeMissing: if OpenVINO is not installed.
        ExportError: if it cannot be compiled.
    """

    has_costs = False
    runtime = "openvino"

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        device = imported("openvino", "openvino").Core().get_property("CPU", "FULL_DEVICE_NAME")
        super().__init__(path, model)
        self.delegation = Delegation(device, True)
