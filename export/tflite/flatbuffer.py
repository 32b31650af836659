"""TFLite files as trees of objects: read, walked, edited and written, in little memory.

The one file that knows the schema of TFLite's flatbuffers. LiteRT ships it as a module that flatc
generated and that is no part of its documented interface: there is no other reader of such files
without TensorFlow.
"""

import collections
import hashlib
import os
import pathlib
from collections.abc import Iterable

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from ..errors import ExportError, damage_refused

OPERATIONS = {value: name for name, value in vars(schema.BuiltinOperator).items()}
_SPARE_BYTES = 2**20


def unpack(content: bytes) -> schema.ModelT:
    """Returns the tree of a TFLite model; its weights are views of `content`.

    Weights that lie behind the model, where its buffers say, come back as if they lay in it.
    """
    tree = schema.ModelT.InitFromPackedBuf(content, 0)
    outside = np.frombuffer(content, np.uint8)
    for buffer in tree.buffers:
        if buffer.offset > 1:  # 0 and 1 stand for none
            buffer.data = outside[buffer.offset : buffer.offset + buffer.size]
        buffer.offset = buffer.size = 0
    tree.metadata = [entry for entry in tree.metadata or [] if entry.name != b"buffer_location"]
    return tree


def has_infinite_float16(tree: schema.ModelT) -> bool:
    """Whether a weight in float16 is infinite, as one above 65504 becomes."""
    tensors = (tensor for graph in tree.subgraphs for tensor in graph.tensors)
    halves = {each.buffer for each in tensors if each.type == schema.TensorType.FLOAT16}
    weights = (tree.buffers[number].data for number in halves)
    return any(np.isinf(np.frombuffer(w, "float16")).any() for w in weights if w is not None)


def pack(tree: schema.ModelT) -> memoryview:
    """Returns the bytes of a tree."""
    for code in tree.operatorCodes:
        # OpenVINO reads this field first. The quantizer leaves 0 in it, which is "ADD".
        code.deprecatedBuiltinCode = min(_builtin(code), 127)
    weights = sum(len(buffer.data) for buffer in tree.buffers if buffer.data is not None)
    # Room for all of it from the start, and no copy of it at the end: a builder that grows
    # holds its content twice.
    builder = flatbuffers.Builder(weights + _SPARE_BYTES)
    builder.Finish(tree.Pack(builder), file_identifier=b"TFL3")
    return memoryview(builder.Bytes)[builder.Head() :]


def nodes(tree: schema.ModelT, graph: schema.SubGraphT) -> list[tuple[str, schema.OperatorT]]:
    """Returns (name, operation) of a graph in order; a name is such as "ADD" or "FlexErf"."""
    names = [
        code.customCode.decode() if code.customCode else OPERATIONS[_builtin(code)]
        for code in tree.operatorCodes
    ]
    return [(names[each.opcodeIndex], each) for each in graph.operators]


def _builtin(code):
    return max(code.builtinCode, code.deprecatedBuiltinCode)


def producers(listed: Iterable[tuple[str, schema.OperatorT]]) -> dict[int, str]:
    """Returns the names of the operations that compute tensors, by the tensors' indices."""
    return {int(tensor): name for name, each in listed for tensor in each.outputs}


def rank(graph: schema.SubGraphT, tensor: int) -> int:
    """Returns the number of a tensor's dimensions."""
    shape = graph.tensors[tensor].shape
    return 0 if shape is None else len(shape)


def add_buffer(tree: schema.ModelT, values: np.ndarray) -> int:
    """Adds the bytes of an array to a tree, and returns the index of their buffer."""
    tree.buffers.append(schema.BufferT(np.frombuffer(values.tobytes(), np.uint8)))
    return len(tree.buffers) - 1


def add_tensor(
    graph: schema.SubGraphT, shape: tuple[int, ...], kind: int, name: str, buffer: int = 0
) -> int:
    """Adds a tensor to a graph, of a type of `schema.TensorType`, and returns its index."""
    graph.tensors.append(schema.TensorT(list(shape), kind, buffer, name))
    return len(graph.tensors) - 1


def add_ints(tree: schema.ModelT, graph: schema.SubGraphT, values: np.ndarray, name: str) -> int:
    """Adds a constant tensor of int32 values to a graph, and returns its index."""
    buffer = add_buffer(tree, values.astype("int32"))
    return add_tensor(graph, values.shape, schema.TensorType.INT32, name, buffer)


def opcode(tree: schema.ModelT, name: str) -> int:
    """Returns the index of an operation's code in a tree, added where it is not there yet."""
    value = getattr(schema.BuiltinOperator, name)
    for index, code in enumerate(tree.operatorCodes):
        if _builtin(code) == value:
            return index
    tree.operatorCodes.append(schema.OperatorCodeT(builtinCode=value))
    return len(tree.operatorCodes) - 1


def share_equal_weights(tree: schema.ModelT) -> None:
    """Makes the tensors with equal weights, such as those of several signatures, share them.

    Changes `tree` in place.
    """
    first: dict[bytes, int] = {}
    replaced: dict[int, int] = {}
    used = {tensor.buffer for graph in tree.subgraphs for tensor in graph.tensors}
    for index in sorted(used):
        buffer = tree.buffers[index]
        if buffer.data is not None and len(buffer.data):
            original = first.setdefault(hashlib.sha256(buffer.data).digest(), index)
            if original != index:
                replaced[index] = original
                buffer.data = None
    for graph in tree.subgraphs:
        for tensor in graph.tensors:
            tensor.buffer = replaced.get(tensor.buffer, tensor.buffer)


class TFLiteFile:
    """A TFLite file and its main graph.

    Attributes:
        tree: as `unpack` returns it.
        operations: names of the main graph's operations in order, "FULLY_CONNECTED", ….
        quantization: one of `export.tflite.quantization.QUANTIZATIONS`, as far as the types of
            weights and activations tell.

    Raises `ExportError` if the file is damaged or of another kind.
    """

    def __init__(self, path: str | os.PathLike):
        path = pathlib.Path(path)
        if path.is_dir():
            raise ExportError(f"Expected a TFLite file. Received: {path}, a directory.")
        content = path.read_bytes()
        if content[4:8] != b"TFL3":
            raise ExportError(
                f"Expected a TFLite file, which has TFL3 in bytes 4 to 8. Received: {path}, "
                f"which starts with {content[:8]!r}. Export the model again."
            )
        with damage_refused(f"Expected a TFLite file. {path} is damaged"):
            self.tree = unpack(content)
            graph = self.tree.subgraphs[0]
            listed = nodes(self.tree, graph)
            self.operations = [name for name, _ in listed]
            self.quantization = _quantization(graph, listed)
            signatures = self.tree.signatureDefs or ()
            graphs = {each.signatureKey: each.subgraphIndex for each in signatures}
        if graphs.get(b"serving_default"):
            raise ExportError(
                f"Expected serving_default to be the first graph, which interpreters run. {path} "
                "has another one first. Export the model again."
            )


def _quantization(graph, listed):
    """Names the scheme by the most frequent types of weights and activations."""
    types, made_by = collections.Counter(), producers(listed)
    for name, operator in listed:
        if name in ("FULLY_CONNECTED", "CONV_2D"):
            inputs, weights, *_ = (graph.tensors[tensor].type for tensor in operator.inputs)
            if made_by.get(int(operator.inputs[1])) == "DEQUANTIZE":
                weights = schema.TensorType.FLOAT16
            types[weights, inputs] += 1
    if not types:
        return "none"
    (weights, activations), _ = types.most_common(1)[0]
    if weights != schema.TensorType.INT8:
        return "float16" if weights == schema.TensorType.FLOAT16 else "none"
    kinds = {schema.TensorType.INT8: "int8", schema.TensorType.INT16: "int16x8"}
    kind = kinds.get(activations, "dynamic")
    if kind != "int8":
        return kind
    sums = {graph.tensors[each.outputs[0]].type for name, each in listed if name == "ADD"}
    if schema.TensorType.INT16 in {tensor.type for tensor in graph.tensors}:
        return "int8-int16"
    return "int8-full" if schema.TensorType.INT8 in sums else "int8"
