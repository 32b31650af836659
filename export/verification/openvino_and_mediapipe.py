"""A TFLite file, run by OpenVINO and by MediaPipe's `ImageClassifier`."""

import os

import keras
import numpy as np

from keras_vit.export.errors import damage_refused, imported
from keras_vit.export.verification.litert_interpreter import TFLiteInterpreter
from keras_vit.export.verification.runtimes import Delegation


class OpenVINO(TFLiteInterpreter):
    """The runtime of a .tflite file in OpenVINO, on the processor; see `Runtime`."""

    has_costs = False
    runtime = "openvino"

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        device = imported("openvino", "openvino").Core().get_property("CPU", "FULL_DEVICE_NAME")
        super().__init__(path, model)
        self.delegation = Delegation(device, True)


class ImageClassifier(TFLiteInterpreter):
    """The runtime of a .tflite file in MediaPipe, which takes photos; see `Runtime`."""

    has_costs = False
    takes_bytes = True

    def run(self, images: np.ndarray) -> np.ndarray:
        mediapipe = imported("mediapipe", "mediapipe")
        tasks = imported("mediapipe.tasks.python", "mediapipe")
        options = tasks.vision.ImageClassifierOptions(
            base_options=tasks.BaseOptions(model_asset_path=os.fspath(self._path))
        )
        rows = []
        with (
            damage_refused(f"{self._path} cannot be run by MediaPipe"),
            tasks.vision.ImageClassifier.create_from_options(options) as classifier,
        ):
            for pixels in np.rint(255 * images).clip(0, 255).astype("uint8"):
                image = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=pixels)
                (found,) = classifier.classify(image).classifications
                ordered = sorted(found.categories, key=lambda category: category.index)
                rows.append([category.score for category in ordered])
        return np.array(rows, "float32").reshape(len(images), *self._function.output_shape)
