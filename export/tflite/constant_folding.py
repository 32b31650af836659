"""Operations on constants alone, computed once: GPU delegates take what they give for zeros."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from export.tflite.flatbuffer_tree import pack
from export.tflite.graph_nodes import producers


def fold_constants(tree: schema.ModelT) -> None:
    """Replaces operations on constants by what they give, where the converter left any.

    Args:
        tree: changed in place.
    """
    for graph in tree.subgraphs:
        if folded := _constant_operations(graph):
            for tensor, values in _computed(tree, graph, folded).items():
                buffer = schema.BufferT()
                buffer.data = np.frombuffer(values.tobytes(), np.uint8)
                tree.buffers.append(buffer)
                graph.tensors[tensor].buffer = len(tree.buffers) - 1
            graph.operators = [each for each in graph.operators if each not in folded]
    _remove_unused(tree)


def _constant_operations(graph):
    """Returns the operations whose results are always the same, in order."""
    varying = {*producers(graph), *map(int, graph.inputs)}
    found = []
    for operator in graph.operators:
        if varying.isdisjoint(map(int, operator.inputs)):
            found.append(operator)
            varying.difference_update(map(int, operator.outputs))
    return found


def _computed(tree, graph, operators):
    """Returns what the operations give, by the indices of tensors."""
    read = {graph.tensors[tensor].buffer for each in operators for tensor in each.inputs}
    model, part = schema.ModelT(), schema.SubGraphT()
    model.version, model.operatorCodes, model.subgraphs = tree.version, tree.operatorCodes, [part]
    model.buffers = [
        buffer if index in read else schema.BufferT() for index, buffer in enumerate(tree.buffers)
    ]
    part.tensors, part.operators, part.inputs = graph.tensors, operators, []
    part.outputs = [int(tensor) for each in operators for tensor in each.outputs]
    interpreter = Interpreter(model_content=bytes(pack(model)))
    interpreter.allocate_tensors()
    interpreter.invoke()
    return {tensor: interpreter.get_tensor(tensor) for tensor in part.outputs}


def _remove_unused(tree):
    """Drops the tensors that no operation reads or gives any longer, and their contents."""
    dropped = set()
    for index, graph in enumerate(tree.subgraphs):
        named = [
            entry
            for signature in tree.signatureDefs or []
            if signature.subgraphIndex == index
            for entry in (*signature.inputs, *signature.outputs)
        ]
        lists = [graph.inputs, graph.outputs]
        lists += [part for each in graph.operators for part in (each.inputs, each.outputs)]
        used = sorted({int(tensor) for each in lists for tensor in each} - {-1})  # -1: left out
        place = {-1: -1, **{old: new for new, old in enumerate(used)}}
        dropped |= {tensor.buffer for i, tensor in enumerate(graph.tensors) if i not in place}
        graph.tensors = [graph.tensors[old] for old in used]
        for owner in (graph, *graph.operators):
            owner.inputs = [place[int(tensor)] for tensor in owner.inputs]
            owner.outputs = [place[int(tensor)] for tensor in owner.outputs]
        for entry in named:
            entry.tensorIndex = place[entry.tensorIndex]
    kept = {tensor.buffer for graph in tree.subgraphs for tensor in graph.tensors}
    for buffer in dropped - kept:
        tree.buffers[buffer].data = None
