"""The operations of a TFLite graph by name, in its tree of objects."""

from typing import NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from export.tflite.inspection import OPERATIONS


class Node(NamedTuple):
    """An operation: its name, such as "ADD", and itself."""

    name: str
    operator: schema.OperatorT


def nodes(tree: schema.ModelT, graph: schema.SubGraphT) -> list[Node]:
    """Returns the operations of a graph in order."""
    codes = [max(code.builtinCode, code.deprecatedBuiltinCode) for code in tree.operatorCodes]
    return [Node(OPERATIONS[codes[each.opcodeIndex]], each) for each in graph.operators]


def producers(graph: schema.SubGraphT) -> dict[int, schema.OperatorT]:
    """Returns which operation computes a tensor, by the tensor's index."""
    return {int(tensor): each for each in graph.operators for tensor in each.outputs}


def rank(graph: schema.SubGraphT, tensor: int) -> int:
    """Returns the number of a tensor's dimensions."""
    shape = graph.tensors[tensor].shape
    return 0 if shape is None else len(shape)


def add_constant(
    tree: schema.ModelT, graph: schema.SubGraphT, values: np.ndarray, name: str
) -> int:
    """Adds a tensor of int32 values to a graph, and returns its index."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(values.astype("int32").tobytes(), np.uint8)
    tree.buffers.append(buffer)
    return add_tensor(graph, values.shape, schema.TensorType.INT32, name, len(tree.buffers) - 1)


def add_tensor(
    graph: schema.SubGraphT, shape: tuple[int, ...], kind: int, name: str, buffer: int = 0
) -> int:
    """Adds a tensor to a graph, of a type of `schema.TensorType`, and returns its index."""
    tensor = schema.TensorT()
    tensor.shape, tensor.type, tensor.name, tensor.buffer = list(shape), kind, name, buffer
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def opcode(tree: schema.ModelT, name: str) -> int:
    """Returns the index of an operation's code in a tree, added where it is not there yet."""
    value = getattr(schema.BuiltinOperator, name)
    for index, code in enumerate(tree.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == value:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = value, min(value, 127), 1
    tree.operatorCodes.append(code)
    return len(tree.operatorCodes) - 1
