"""Inference on CPUs: a model as a TFLite file, in the runtime that is fastest."""

import contextlib
import os
import shutil
from typing import Any, BinaryIO, Literal

import keras
import numpy as np

from keras_vit.files.hidden_folder import scratch_folder
from keras_vit.models.image_model import model_inside
from keras_vit.name_suggestions import require_one_of
from keras_vit.photos.prepare_photos import require_model_range, warn_of_0_to_1
from keras_vit.training.inference.exported_functions import Runtime, TFLiteFunction
from keras_vit.training.inference.interface import image_size
from keras_vit.training.io.atomic import atomic_file
from keras_vit.type_hints import Tensor

from ..errors import ExportError
from ..supported_models import CLASSIFIERS
from .to_tflite import to_tflite

Precision = Literal["float32", "bfloat16", "int8"]
_QUANTIZATIONS = {"float32": "none", "bfloat16": "none", "int8": "dynamic"}


class InferenceFunction:
    """A model in a TFLite file, run on the processor; `inference_function` makes it.

    Several threads may call it, but no fork of the process that made it.

    Attributes:
        image_shape: (height, width, 3) of its images.
        runtime: "litert" or "openvino", which computes.
    """

    def __init__(self, file: BinaryIO, function: TFLiteFunction) -> None:
        self.image_shape = function.image_shape
        self.runtime = function.runtime
        self._file = file
        self._function = function

    def __call__(self, images: Tensor) -> np.ndarray:
        """Returns the model's outputs, float32 (n, ...).

        Args:
            images: (n, height, width, 3) in [-1, 1], n at least 1.

        Raises `ValueError` if the images are no array of numbers, or have another shape or range;
        `RuntimeError` in a fork of the process that made the function.
        """
        advice = "keras_vit.predict takes photos of any size and paths."
        return self._function(_in_0_to_1(images, self.image_shape, advice))

    def save(self, path: str | os.PathLike) -> None:
        """Writes the TFLite file, which `load_inference_function` opens without the model.

        Args:
            path: exactly the name of the file, which appears whole or not at all.

        Raises:
            OSError: if the file cannot be written.
        """
        with atomic_file(path) as temporary, temporary.open("wb") as target:
            self._file.seek(0)
            shutil.copyfileobj(self._file, target)


def _in_0_to_1(images, shape, advice):
    expected = f"Expected images of shape (n, {', '.join(map(str, shape))})"
    try:
        array = keras.ops.convert_to_numpy(images)
        if array.dtype.kind in "biucOSU":
            raise TypeError(array.dtype)
        array = array.astype("float32")
    except (TypeError, ValueError) as error:
        received = f"{type(images).__name__} ({error})"
        raise ValueError(f"{expected}, floats. Received: {received}. {advice}") from error
    if array.shape[1:] != shape or not len(array):
        raise ValueError(f"{expected}, at least one. Received: {array.shape}. {advice}")
    require_model_range(array)
    warn_of_0_to_1(array)
    return (array + 1) / 2


def inference_function(
    model: keras.Model,
    precision: Precision = "float32",
    *,
    calibration: Tensor | None = None,
    batch_size: int = 1,
    runtime: Runtime | None = None,
    threads: int | None = None,
) -> InferenceFunction:
    """Returns a function from images to a model's outputs, for CPUs.

    Exports the model to a TFLite file, in the temporary folder, and runs it in LiteRT or OpenVINO.
    The function keeps the weights that the model has now.

    Args:
        model: of this package, on Keras's TensorFlow backend.
        precision:
            "float32": results differ from the model's by rounding.
            "bfloat16": OpenVINO rounds products to bfloat16; float32 on a processor without
                instructions for it.
            "int8": weights in int8, activations rounded by their range in each image, or by fixed
                ranges: those of `calibration`.
        calibration: some 100 images like those of calls, (n, height, width, 3) in [-1, 1].
        batch_size: how many images usually come at once. They are computed side by side on
            `threads` divided among them; one image alone has the threads of one. LiteRT copies the
            weights for each.
        runtime: "litert", or "openvino", an extra of the installation. None takes OpenVINO where it
            is installed and faster, for floats of more than 64 MiB and bfloat16 on a processor with
            instructions for bfloat16, else LiteRT.
        threads: of one call; None takes every core that the process may use.

    Returns:
        A function that takes images, (n, height, width, 3) in [-1, 1], and returns the outputs, a
        float32 NumPy array (n, ...). Its `save` writes the file.

    Raises:
        ValueError: if an argument is out of its range, or the model cannot be exported, see
            `export.to_tflite`.
        UsageError: if the runtime is not installed.

    Examples:
        >>> predict = keras_vit.inference_function(model)
        >>> logits = predict(images)
        >>> predict.save("classifier.tflite")
    """
    require_one_of("precision", precision, _QUANTIZATIONS)
    if not isinstance(model, CLASSIFIERS):
        raise ExportError(
            f"Expected a classifier of keras_vit. Received: {type(model).__name__} {model.name}."
            f"{model_inside(model, needs_head=True)}"
        )
    options: dict[str, Any] = {"quantization": _QUANTIZATIONS[precision]}
    if calibration is not None:
        if precision != "int8":
            raise ValueError(f'Expected precision="int8" for calibration. Received: {precision!r}')
        images = _in_0_to_1(calibration, (*image_size(model), 3), "They calibrate int8.")
        options = {"quantization": "int8", "calibration": images}
    # A file that is mapped and open needs its name no longer.
    with scratch_folder() as folder:
        to_tflite(model, folder / "model.tflite", **options)
        return load_inference_function(
            folder / "model.tflite",
            batch_size=batch_size,
            bfloat16=precision == "bfloat16",
            runtime=runtime,
            threads=threads,
        )


def load_inference_function(
    path: str | os.PathLike,
    *,
    batch_size: int = 1,
    bfloat16: bool = False,
    runtime: Runtime | None = None,
    threads: int | None = None,
) -> InferenceFunction:
    """Returns the function of a TFLite file, without building its model.

    The file is mapped: to replace it, rename another one, and never write into it.

    Args:
        path: a file that `InferenceFunction.save` or `export.to_tflite` wrote.
        batch_size: as in `inference_function`.
        bfloat16: whether OpenVINO computes a float32 file in bfloat16, where the processor can.
        runtime: as in `inference_function`.
        threads: as in `inference_function`.

    Raises:
        ValueError: if the file is damaged or of another kind, or an argument is out of its range.
        UsageError: if the runtime is not installed.
        OSError: if it cannot be read.

    Examples:
        >>> predict = keras_vit.load_inference_function("classifier.tflite")
        >>> logits = predict(images)
    """
    every_core = threads is None
    for name, value in (("batch_size", batch_size), ("threads", 1 if every_core else threads)):
        if type(value) is not int or value < 1:
            raise ValueError(f"`{name}` must be a positive int. Received: {value!r}")
    if bfloat16 and runtime not in (None, "openvino"):
        raise ValueError(f'Expected runtime="openvino" for bfloat16. Received: {runtime!r}')
    with contextlib.ExitStack() as until_made:
        # The same file is saved, whatever takes its name meanwhile.
        file = until_made.enter_context(open(path, "rb"))
        function = TFLiteFunction(path, runtime, threads, batch_size, bfloat16)
        if function.image_shape[-1] != 3 or not function.of_one_image:
            raise ValueError(
                f"Expected a TFLite file from an image in red, green and blue to its outputs. "
                f"Received: {path}, from {function.image_shape} to {function.output_shape}"
            )
        until_made.pop_all()
    return InferenceFunction(file, function)
