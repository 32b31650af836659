"""Where in a quantized file the error comes from: each operation beside its float32 one."""

import os
import pathlib
import re
from typing import NamedTuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from export.errors import ExportError
from export.tflite.flatbuffer_tree import unpack
from export.tflite.graph_nodes import nodes, producers

# What moves values and computes none has the error of what it moves.
MOVES = ("RESHAPE", "TRANSPOSE", "STRIDED_SLICE", "SLICE", "SPLIT", "CONCATENATION", "PAD")
_COPY = re.compile(r"_\d+$")


class LayerError(NamedTuple):
    """The error of one operation.

    Attributes:
        layer: path of the layer that it belongs to, "encoder_block_00/mlp/hidden".
        operation: such as "FULLY_CONNECTED".
        type: of its result in the quantized file, "int8", "int16" or "float32".
        error: root mean square of its result's error, in units of that of its result.
        inputs_error: the largest of such errors among what it computes with, 0 for images. An
            operation that is worse than its inputs is where a file loses.
    """

    layer: str
    operation: str
    type: str
    error: float
    inputs_error: float


def layer_errors(
    reference: str | os.PathLike, file: str | os.PathLike, images: np.ndarray
) -> list[LayerError]:
    """Returns the errors of the operations that compute, in the order of the graph.

    Args:
        reference: the model's file in float32.
        file: a quantized file of the same model.
        images: (n, height, width, 3) float32 in [0, 1]; a few are enough.

    Raises:
        ExportError: if the operations of the two files have other names.
    """
    tree = unpack(pathlib.Path(reference).read_bytes())
    graph = tree.subgraphs[0]
    errors, types = _errors(reference, file, images)
    computed = producers(graph)
    computing = [node for node in nodes(tree, graph) if node.name not in MOVES]
    found = []
    for name, operator in computing:
        tensor = graph.tensors[operator.outputs[0]].name.decode()
        inputs = [graph.tensors[i].name.decode() for i in operator.inputs if int(i) in computed]
        before = [errors.get(each, 0.0) for each in inputs]
        if tensor in errors:
            layer = _layer(tensor, tree.signatureDefs[0].outputs[0].name.decode())
            row = LayerError(layer, name, types[tensor], errors[tensor], max(before, default=0.0))
            found.append(row)
    if len(found) < len(computing) / 2:
        raise ExportError(
            f"Expected a file of the same model, exported by the same version. Received: {file}, "
            f"which has {len(found)} of the model's {len(computing)} operations by their names. "
            "Export it again."
        )
    return found


def _errors(reference, file, images):
    """Returns the error and the type in `file` of the tensors that both have, by name."""
    runs = [_Tensors(each) for each in (reference, file)]
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
    """Every tensor of a file, which delegates would not keep."""

    def __init__(self, file):
        self._interpreter = Interpreter(
            str(file),
            num_threads=1,
            experimental_preserve_all_tensors=True,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        self._run = self._interpreter.get_signature_runner("serving_default")
        details = self._interpreter.get_tensor_details()
        self.types = {each["name"]: np.dtype(each["dtype"]).name for each in details}

    def values(self, image):
        self._run(image=image)
        values = {}
        for each in self._interpreter.get_tensor_details():
            scales = each["quantization_parameters"]["scales"]
            if len(each["shape"]) and len(scales) <= 1:  # more are of constants
                found = self._interpreter.get_tensor(each["index"]).astype("float64")
                if len(scales):
                    found = scales[0] * (found - each["quantization_parameters"]["zero_points"][0])
                values[each["name"]] = found
        return values


def _layer(tensor, output):
    """Returns the path of a layer from the name of a tensor that it computes.

    The converter joins the names of operations that it fuses; the last path names the layer.
    """
    paths = [path.split("/") for path in tensor.split(";") if "/" in path]
    if not paths:
        return output
    parts = [_COPY.sub("", part) for part in max(paths, key=len)[1:-1]]
    return "/".join(parts)
