"""What the weights and activations of a TFLite file are rounded to, as data."""

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

# The operations with weights: nearly all the time of a Transformer, and the only
# ones whose rounding costs no accuracy to speak of.
WEIGHTED = ("FULLY_CONNECTED", "CONV_2D")


def _float16(manager):
    from ai_edge_quantizer import qtyping, quantizer

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
    from ai_edge_quantizer import quantizer

    manager.add_static_config(".*", "*", activation_num_bits=8, weight_num_bits=8)
    for end in ("INPUT", "OUTPUT"):  # callers keep floats in every variant
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


def quantize(
    model: bytes | memoryview,
    quantization: str,
    samples: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> bytes:
    """Returns the quantized bytes of a TFLite model.

    Args:
        model: the float32 model.
        quantization: a key of `RECIPES`.
        samples: for `CALIBRATED`, for each name of a signature its inputs, arrays by name.
    """
    from ai_edge_quantizer import calibrator, quantizer, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

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
