"""Rounds the weights and activations of a TFLite file; each scheme is data.

The one file that knows LiteRT's quantizer. Of its modules only `quantizer` is documented, which
calibrates by a moving average of ranges; it takes no float16 recipe and no other calibration but
from the modules below it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from keras_vit.training.io.quiet_start import quiet_conversion

from ..errors import ExportError

# The operations with weights: nearly all the time of a Transformer, and the only
# ones whose rounding costs no accuracy to speak of.
WEIGHTED = ("FULLY_CONNECTED", "CONV_2D")
# 16 bits with one scale are too few for these: a normalization magnifies tokens near zero, such as
# a class token or registers, beside large ones, up to 1 / sqrt(epsilon) times.
WIDE_RANGE = ("ADD", "MEAN", "MUL", "RSQRT")
# In 8 bits, reciprocal roots above this multiple of the smallest saturate. A scale for the thousand
# of a token of zeros would round those of the others to zero.
GREATEST_RSQRT = 32
# LiteRT refuses 16-bit differences whose scales happen to be powers of two, as pixels' are.
REFUSED_IN_16_BITS = ("SUB",)
ENDS = ("INPUT", "OUTPUT")  # callers keep floats in every variant

# The rounding of each kind of operation; the last row that names an operation wins.
_IN_FLOAT = (*ENDS, *WIDE_RANGE, *REFUSED_IN_16_BITS)
RECIPES = {
    "float16": [("float16", WEIGHTED)],
    "dynamic": [("dynamic", WEIGHTED)],
    "int8": [("int8", WEIGHTED)],
    "int8-full": [("int8", ("*",)), ("float", ENDS)],
    "int16x8": [("int16", ("*",)), ("float", _IN_FLOAT)],
    "int8-int16": [("int16", ("*",)), ("float", _IN_FLOAT), ("int8", WEIGHTED)],
}
FOR_NPUS = ("int8-full", "int16x8", "int8-int16")
CALIBRATED = frozenset(("int8", *FOR_NPUS))
QUANTIZATIONS = ("none", *RECIPES)


def quantize(
    model: bytes | memoryview,
    quantization: str,
    samples: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> memoryview:
    """Returns the quantized bytes of a TFLite model.

    Args:
        model: the float32 model.
        quantization: a key of `RECIPES`.
        samples: for `CALIBRATED`, for each name of a signature its inputs, arrays by name.

    Raises `ExportError` if a weight is larger than float16 can be, and is to be that.
    """
    from litert_quantizer.quantizer import Quantizer

    from .flatbuffer import has_infinite_float16, pack, unpack

    manager = _recipe(quantization)
    with quiet_conversion(UserWarning):
        tool = Quantizer(bytearray(model), manager.get_quantization_recipe())
        calibrated = quantization in CALIBRATED
        ranges = _activation_ranges(bytes(model), samples, manager) if calibrated else None
        tree = unpack(tool.quantize(ranges).quantized_model)
    if quantization == "float16" and has_infinite_float16(tree):
        raise ExportError(
            "Expected weights of at most 65504, the largest number of float16. Received: a model "
            "with larger ones. Use another quantization, such as none."
        )
    # The quantizer puts weights behind the model, where OpenVINO does not look.
    return pack(tree)


def _recipe(quantization):
    from litert_quantizer import qtyping
    from litert_quantizer.quantizer import AlgorithmName
    from litert_quantizer.recipe_manager import RecipeManager

    manager = RecipeManager()
    float16 = qtyping.OpQuantizationConfig(
        weight_tensor_config=qtyping.TensorQuantizationConfig(
            num_bits=16, dtype=qtyping.TensorDataType.FLOAT
        ),
        compute_precision=qtyping.ComputePrecision.FLOAT,
        explicit_dequantize=True,
    )
    other, static = manager.add_quantization_config, manager.add_static_config
    add = {
        "float": partial(other, algorithm_key=AlgorithmName.NO_QUANTIZE),
        "float16": partial(other, op_config=float16, algorithm_key=AlgorithmName.FLOAT_CASTING),
        "dynamic": partial(manager.add_dynamic_config, num_bits=8),
        "int8": partial(static, activation_num_bits=8, weight_num_bits=8),
        "int16": partial(static, activation_num_bits=16, weight_num_bits=8),
    }
    for kind, operations in RECIPES[quantization]:
        for operation in operations:
            add[kind](".*", operation)
    return manager


def _activation_ranges(model, samples, manager):
    """Returns {name of a tensor: {"min": …, "max": …}}, float32 arrays of the tensor's rank."""
    # Here, so that commands can name the recipes before they import anything large.
    import numpy as np
    from litert_quantizer import calibrator
    from litert_quantizer.utils.qsv_utils import min_max_update

    from .flatbuffer import nodes, rank, unpack

    observer = calibrator.Calibrator(
        model,
        num_threads=1,
        # Finds the extremes where they are computed. The default copies every tensor for that.
        mode=calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED,
        # The default keeps a moving average of the extremes, which clips the outliers that
        # Transformers have.
        qsv_update_func=min_max_update,
    )
    observer.calibrate(samples, manager)
    tree, found = unpack(model), observer.get_model_qsvs()
    ranks = {}
    for graph in tree.subgraphs:
        names = [tensor.name.decode() for tensor in graph.tensors]
        ranks |= {name: rank(graph, index) for index, name in enumerate(names)}
        for operation, operator in nodes(tree, graph):
            if operation == "RSQRT" and (ends := found.get(names[operator.outputs[0]])):
                ends["max"] = np.minimum(ends["max"], GREATEST_RSQRT * ends["min"])
    return {
        name: {end: np.full((1,) * ranks[name], value, "float32") for end, value in ends.items()}
        for name, ends in found.items()
    }
