"""What a TFLite file is made of, read without copying its weights."""

import collections
import os
import pathlib
import struct

from ai_edge_litert import schema_py_generated as schema

from export.errors import ExportError

FLEX = "Flex"
DAMAGE = (IndexError, TypeError, ValueError, AttributeError, KeyError, struct.error)
OPERATIONS = {value: name for name, value in vars(schema.BuiltinOperator).items()}


class TFLiteFile:
    """A TFLite file's main graph.

    Args:
        path: the file.

    Attributes:
        operations: names of the operations in order, "FULLY_CONNECTED", ….
        quantization: one of `export.tflite.quantization.QUANTIZATIONS`, as far as the types of
            weights and activations tell.

    Raises:
        ExportError: if the file is damaged or of another kind.
    """

    def __init__(self, path: str | os.PathLike):
        content = pathlib.Path(path).read_bytes()
        if content[4:8] != b"TFL3":
            raise ExportError(
                f"Expected a TFLite file, which has TFL3 in bytes 4 to 8. Received: {path}, "
                f"which starts with {content[:8]!r}. Export the model again."
            )
        try:
            model = schema.Model.GetRootAs(content, 0)
            self._codes = [
                _name(model.OperatorCodes(i)) for i in range(model.OperatorCodesLength())
            ]
            graph = model.Subgraphs(0)
            nodes = [graph.Operators(i) for i in range(graph.OperatorsLength())]
            self.operations = [self._codes[node.OpcodeIndex()] for node in nodes]
            self.quantization = _quantization(graph, nodes, self.operations)
        except DAMAGE as error:
            raise ExportError(
                f"Expected a TFLite file. {path} is damaged ({type(error).__name__}: {error}). "
                "Export the model again."
            ) from error

    @property
    def flex_operations(self) -> list[str]:
        """Names of operations that need TensorFlow itself on the phone."""
        return sorted({name for name in self.operations if name.startswith(FLEX)})


def _name(code):
    builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    custom = code.CustomCode()
    return custom.decode() if custom else OPERATIONS[builtin]


def _quantization(graph, nodes, operations):
    """Names the scheme by the most frequent types of weights and activations."""
    types = collections.Counter()
    producers = {node.Outputs(0): name for node, name in zip(nodes, operations, strict=True)}
    for node, name in zip(nodes, operations, strict=True):
        if name in ("FULLY_CONNECTED", "CONV_2D"):
            weights = graph.Tensors(node.Inputs(1)).Type()
            if producers.get(node.Inputs(1)) == "DEQUANTIZE":
                weights = schema.TensorType.FLOAT16
            types[weights, graph.Tensors(node.Inputs(0)).Type()] += 1
    if not types:
        return "none"
    (weights, activations), _ = types.most_common(1)[0]
    if weights == schema.TensorType.FLOAT16:
        return "float16"
    if weights != schema.TensorType.INT8:
        return "none"
    sums = [node for node, name in zip(nodes, operations, strict=True) if name == "ADD"]
    added = graph.Tensors(sums[0].Outputs(0)).Type() if sums else None
    kinds = {schema.TensorType.INT8: "int8", schema.TensorType.INT16: "int16x8"}
    kind = kinds.get(activations, "dynamic")
    if kind == "int8" and added in kinds:
        return {"int8": "int8-full", "int16x8": "int8-int16"}[kinds[added]]
    return kind
