"""What the weights and activations of a TFLite file are rounded to, as data."""

import contextlib
import io
import warnings

import numpy as np
from ai_edge_quantizer import calibrator, qtyping, quantizer, recipe_manager
from ai_edge_quantizer.utils import qsv_utils

from export.image_range import check_range

OPERATION = qtyping.TFLOperationName
# The operations with weights: nearly all the time of a Transformer, and the only
# ones whose rounding costs no accuracy to speak of.
WEIGHTED = (OPERATION.FULLY_CONNECTED, OPERATION.CONV_2D)


def _float16(manager):
    for operation in WEIGHTED:
        manager.add_quantization_config(
            ".*",
            operation,
            qtyping.OpQuantizationConfig(
                weight_tensor_config=qtyping.TensorQuantizationConfig(
                    num_bits=16, dtype=qtyping.TensorDataType.FLOAT
                ),
                compute_precision=qtyping.ComputePrecision.FLOAT,
                explicit_dequantize=True,
            ),
            quantizer.AlgorithmName.FLOAT_CASTING,
        )


def _dynamic(manager):
    for operation in WEIGHTED:
        manager.add_dynamic_config(".*", operation, num_bits=8)


def _int8(manager):
    for operation in WEIGHTED:
        manager.add_static_config(".*", operation, activation_num_bits=8, weight_num_bits=8)


def _int8_full(manager):
    manager.add_static_config(
        ".*", OPERATION.ALL_SUPPORTED, activation_num_bits=8, weight_num_bits=8
    )
    for end in (OPERATION.INPUT, OPERATION.OUTPUT):  # callers keep floats in every variant
        manager.add_quantization_config(
            ".*", end, algorithm_key=quantizer.AlgorithmName.NO_QUANTIZE
        )


RECIPES = {
    "float16": _float16,
    "dynamic": _dynamic,
    "int8": _int8,
    "int8-full": _int8_full,
}
CALIBRATED = ("int8", "int8-full")
QUANTIZATIONS = ("none", *RECIPES)


def quantize(model, quantization, samples=None):
    """Returns the quantised bytes of a TFLite model.

    Args:
        model: bytes of the float32 model.
        quantization: a key of `RECIPES`.
        samples: for `CALIBRATED`, dict of signature name to a list of inputs,
            each a dict of input name to array.
    """
    manager = recipe_manager.RecipeManager()
    RECIPES[quantization](manager)
    with _silence():
        tool = quantizer.Quantizer(bytearray(model), manager.get_quantization_recipe())
        result = None
        if quantization in CALIBRATED:
            # The default calibrator keeps a moving average of the extremes, which
            # clips the outliers that Transformers have.
            observer = calibrator.Calibrator(
                bytes(model), num_threads=1, qsv_update_func=qsv_utils.min_max_update
            )
            observer.calibrate(samples, manager)
            result = observer.get_model_qsvs()
        return bytes(tool.quantize(result).quantized_model)


@contextlib.contextmanager
def _silence():
    """Keeps the quantizer's progress bars and size reports off the terminal."""
    sink = io.StringIO()
    with (
        contextlib.redirect_stdout(sink),
        contextlib.redirect_stderr(sink),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", UserWarning)
        yield


def calibration_images(calibration, size, limit):
    """Returns up to `limit` images, (n, height, width, 3) float32 in [0, 1].

    Args:
        calibration: array of images, or an iterable of images or of batches.
        size: (height, width) in pixels.
        limit: int.

    Raises:
        ValueError: if there are none, or their size or range is another.
    """
    images = []
    for each in calibration:
        array = np.asarray(each, dtype="float32")
        images.extend(array if array.ndim == 4 else [array])
        if len(images) >= limit:
            break
    shapes = {image.shape for image in images[:limit]}
    if shapes != {(*size, 3)}:
        raise ValueError(
            f"Expected calibration images of shape {(*size, 3)}. Received: "
            f"{sorted(shapes) or 'no images'}"
        )
    images = np.stack(images[:limit])
    check_range(images)
    return images
