"""Finds the operations of a quantized file that have the error, each beside float32's."""

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from ..errors import ExportError, damage_refused
from .flatbuffer import TFLiteFile, nodes, producers

# Operations that move values have the error of their input.
MOVES = ("RESHAPE", "TRANSPOSE", "STRIDED_SLICE", "SLICE", "SPLIT", "CONCATENATION", "PAD")
_COPY = re.compile(r"_\d+$")


class LayerError(NamedTuple):
    """The error of one operation."""

    layer: str  # path of the layer that it belongs to, "encoder_block_00/mlp/hidden"
    operation: str  # such as "FULLY_CONNECTED"
    type: str  # of its result in the quantized file, "int8", "int16" or "float32"
    error: float  # root mean square of its result's error, in units of that of its result
    # The largest such error among its inputs, 0 for images. A file loses accuracy in operations
    # whose error is far above that of their inputs.
    inputs_error: float


def layer_errors(
    reference: str | os.PathLike, file: str | os.PathLike, images: np.ndarray
) -> list[LayerError]:
    """Returns the errors of the operations that compute, in the order of the graph.

    Args:
        reference: the model's file in float32.
        file: a quantized file of the same model.
        images: (n, height, width, 3) float32 in [0, 1]; a few are enough.

    Raises `ExportError` if the operations of the two files have other names, the outputs other
    shapes, or `file` is damaged.
    """
    tree = TFLiteFile(reference).tree
    graph = tree.subgraphs[0]
    with damage_refused(f"{file} cannot be run"):
        errors, types = _errors(reference, file, images)
    listed = nodes(tree, graph)
    computed = producers(listed)
    computing = [(name, operator) for name, operator in listed if name not in MOVES]
    names = [each.name.decode() for each in graph.tensors]
    output = tree.signatureDefs[0].outputs[0].name.decode()
    found = []
    for operation, operator in computing:
        name = names[operator.outputs[0]]
        before = [errors.get(names[i], 0.0) for i in operator.inputs if int(i) in computed]
        if name in errors:
            layer, worst = _layer(name, output), max(before, default=0.0)
            found.append(LayerError(layer, operation, types[name], errors[name], worst))
    others = _parts(TFLiteFile(file).tree) - _parts(tree)
    if len(found) < len(computing) / 2 or others:
        more = f" and layers of its own, {', '.join(sorted(others))}" if others else ""
        raise ExportError(
            f"Expected a file of the same model, exported by the same version. Received: {file}, "
            f"which has {len(found)} of the model's {len(computing)} operations by their "
            f"names{more}. Export it again."
        )
    return found


def figure(errors: Sequence[LayerError]) -> Any:
    """Draws the error of each operation in order, one color a type, on a logarithmic scale."""
    from keras_vit.training.reporting.matplotlib_figures import new_figure

    drawn, (axis,) = new_figure(width=9)
    axis.plot([each.error for each in errors], color="lightgray", zorder=1)
    for kind in dict.fromkeys(each.type for each in errors):
        points = [(place, each.error) for place, each in enumerate(errors) if each.type == kind]
        axis.scatter(*zip(*points, strict=True), s=9, label=kind, zorder=2)
    starts: dict[str, int] = {}
    for place, each in enumerate(errors):
        starts.setdefault(each.layer.split("/")[0], place)
    axis.set_xticks(list(starts.values()), list(starts), rotation=60, ha="right", fontsize=7)
    if any(each.error for each in errors):
        axis.set_yscale("log")
    axis.tick_params(axis="y", which="both", labelsize=7)
    axis.set_ylabel("relative error")
    axis.legend(fontsize=8)
    return drawn


def _errors(reference, file, images):
    """Returns the error and the type in `file` of the tensors that both have, by name."""
    runs = [_Tensors(each) for each in (reference, file)]
    expected, found = (run.output_shape for run in runs)
    if expected != found:
        raise ExportError(
            f"Expected a file of the same model, which gives outputs of shape {expected}. "
            f"Received: {file}, which gives {found}."
        )
    squares: dict[str, np.ndarray] = {}
    for image in images:
        ours, theirs = (run.values(image[None]) for run in runs)
        for name in ours.keys() & theirs.keys():
            if ours[name].shape == theirs[name].shape:
                difference = theirs[name] - ours[name]
                sums = np.array([(difference**2).sum(), (ours[name] ** 2).sum()])
                squares[name] = squares.get(name, 0) + sums
    errors = {name: float(np.sqrt(e / max(s, 1e-30))) for name, (e, s) in squares.items()}
    return errors, runs[1].types


class _Tensors:
    """Runs a file without delegates, which would not keep the tensors in between."""

    def __init__(self, file):
        self._interpreter = Interpreter(
            str(file),
            num_threads=1,
            experimental_preserve_all_tensors=True,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        self._run = self._interpreter.get_signature_runner("serving_default")
        self.output_shape = self._interpreter.get_output_details()[0]["shape"].tolist()
        details = self._interpreter.get_tensor_details()
        self.types = {each["name"]: np.dtype(each["dtype"]).name for each in details}

    def values(self, image):
        self._run(image=image)
        values = {}
        for each in self._interpreter.get_tensor_details():
            scales = each["quantization_parameters"]["scales"]
            if len(each["shape"]) and len(scales) <= 1:  # more are of constants
                with np.errstate(invalid="ignore"):  # memory that LiteRT has not filled
                    found = self._interpreter.get_tensor(each["index"]).astype("float64")
                if len(scales):
                    found = scales[0] * (found - each["quantization_parameters"]["zero_points"][0])
                values[each["name"]] = found
        return values


def _parts(tree):
    """Returns the layers of a model whose results a file has, such as "encoder_block_00"."""
    graph = tree.subgraphs[0]
    return {
        _layer(graph.tensors[operator.outputs[0]].name.decode(), "").split("/")[0]
        for operation, operator in nodes(tree, graph)
        if operation != "DEQUANTIZE"  # of weights
    }


def _layer(tensor, output):
    """Returns the path of a layer from the name of a tensor that it computes.

    The converter joins the names of operations that it fuses; the last path names the layer.
    """
    paths = [path.split("/") for path in tensor.split(";") if "/" in path]
    if not paths:
        return output
    parts = [_COPY.sub("", part) for part in max(paths, key=len)[1:-1]]
    return "/".join(parts)
