"""What the weights and activations of a TFLite file are rounded to, as data."""

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from export.tflite.quantizer_package import quantizer_module

# The operations with weights: nearly all the time of a Transformer, and the only
# ones whose rounding costs no accuracy to speak of.
WEIGHTED = ("FULLY_CONNECTED", "CONV_2D")
# What 16 bits are too few for: the normalizations' sums of squares, and their reciprocal roots.
WIDE_RANGE = ("MEAN", "MUL", "RSQRT")
# LiteRT refuses 16-bit differences whose scales happen to be powers of two, as pixels' are.
REFUSED_IN_16_BITS = ("SUB",)
ENDS = ("INPUT", "OUTPUT")  # callers keep floats in every variant


def _float16(manager):
    qtyping, quantizer = quantizer_module("qtyping"), quantizer_module("quantizer")
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
    manager.add_static_config(".*", "*", activation_num_bits=8, weight_num_bits=8)
    _keep_float(manager, ENDS)


def _int16x8(manager):
    manager.add_static_config(".*", "*", activation_num_bits=16, weight_num_bits=8)
    _keep_float(manager, (*ENDS, *WIDE_RANGE, *REFUSED_IN_16_BITS))


def _int8_int16(manager):
    _int16x8(manager)
    _int8(manager)


def _keep_float(manager, operations):
    none = quantizer_module("quantizer").AlgorithmName.NO_QUANTIZE
    for operation in operations:
        manager.add_quantization_config(".*", operation, algorithm_key=none)


RECIPES = {
    "float16": _float16,
    "dynamic": _dynamic,
    "int8": _int8,
    "int8-full": _int8_full,
    "int16x8": _int16x8,
    "int8-int16": _int8_int16,
}
FOR_NPUS = ("int8-full", "int16x8", "int8-int16")
CALIBRATED = ("int8", *FOR_NPUS)
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
    # Here, so that commands can name the recipes before they import anything large.
    from export.tflite.activation_ranges import activation_ranges

    quantizer = quantizer_module("quantizer")
    manager = quantizer_module("recipe_manager").RecipeManager()
    RECIPES[quantization](manager)
    with _silence():
        tool = quantizer.Quantizer(bytearray(model), manager.get_quantization_recipe())
        ranges = None
        if quantization in CALIBRATED:
            ranges = activation_ranges(bytes(model), samples or {}, manager)
        return bytes(tool.quantize(ranges).quantized_model)


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
