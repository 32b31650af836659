"""Operands of equal rank, without which GPU delegates add the wrong elements to each other."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from export.tflite.graph_nodes import (
    add_constant,
    add_tensor,
    nodes,
    opcode,
    producers,
    rank,
)

ELEMENTWISE = (
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "MAXIMUM",
    "MINIMUM",
    "SQUARED_DIFFERENCE",
)


def lower_operands(graph: schema.SubGraphT, name: str, operator: schema.OperatorT) -> list[int]:
    """Returns the positions of an operation's inputs that are computed and of too low a rank.

    Constants of a lower rank are broadcast as they should be.
    """
    if name not in ELEMENTWISE:
        return []
    computed = {*producers(graph), *map(int, graph.inputs)}
    full = rank(graph, operator.outputs[0])
    return [
        position
        for position, tensor in enumerate(operator.inputs)
        if int(tensor) in computed and rank(graph, tensor) < full
    ]


def equalize_ranks(tree: schema.ModelT) -> None:
    """Reshapes what is computed to the rank of what it is added to, or multiplied with.

    The converter drops such reshapes, as broadcasting does without them: it adds (17, 64) to
    (1, 17, 64).

    Args:
        tree: changed in place.
    """
    for graph in tree.subgraphs:
        for name, operator in nodes(tree, graph):
            for position in lower_operands(graph, name, operator):
                _reshape(tree, graph, operator, position)


def _reshape(tree, graph, operator, position):
    tensor = int(operator.inputs[position])
    old = graph.tensors[tensor]
    missing = rank(graph, operator.outputs[0]) - len(old.shape)
    shape = np.array([1] * missing + list(old.shape))
    label = old.name + b"/equal_rank"
    reshape, options = schema.OperatorT(), schema.ReshapeOptionsT()
    options.newShape = shape.tolist()
    reshape.builtinOptionsType = schema.BuiltinOptions.ReshapeOptions
    reshape.builtinOptions = options
    reshape.opcodeIndex = opcode(tree, "RESHAPE")
    reshape.inputs = [tensor, add_constant(tree, graph, shape, label + b"/shape")]
    reshape.outputs = [add_tensor(graph, shape, old.type, label)]
    inputs = list(operator.inputs)
    inputs[position] = reshape.outputs[0]
    operator.inputs = inputs
    graph.operators.insert(graph.operators.index(operator), reshape)
