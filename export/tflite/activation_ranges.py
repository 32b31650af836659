"""The ranges of a TFLite graph's activations on samples, which quantizing fixes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from export.tflite.flatbuffer_tree import unpack
from export.tflite.graph_nodes import rank
from export.tflite.quantizer_package import quantizer_module


def activation_ranges(
    model: bytes, samples: Mapping[str, Sequence[Mapping[str, Any]]], manager: Any
) -> dict[str, dict[str, np.ndarray]]:
    """Returns {name of a tensor: {"min": …, "max": …}}, float32 arrays of the tensor's rank.

    Args:
        model: bytes of a float32 TFLite file.
        samples: for each name of a signature its inputs, arrays by name.
        manager: LiteRT's recipe manager, with the recipe that the ranges are for.
    """
    calibrator = quantizer_module("calibrator")
    observer = calibrator.Calibrator(
        model,
        num_threads=1,
        # Finds the extremes where they are computed. The default copies every tensor for that.
        mode=calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED,
        # The default keeps a moving average of the extremes, which clips the outliers that
        # Transformers have.
        qsv_update_func=quantizer_module("utils.qsv_utils").min_max_update,
    )
    observer.calibrate(samples, manager)
    ranks = {
        tensor.name.decode(): rank(graph, index)
        for graph in unpack(model).subgraphs
        for index, tensor in enumerate(graph.tensors)
    }
    return {
        name: {end: np.full((1,) * ranks[name], value, "float32") for end, value in ends.items()}
        for name, ends in observer.get_model_qsvs().items()
    }
