"""Graphs of TFLite files that GPU delegates compute right: faults are found, and mended.

Delegates compute some operations wrongly without a word, and leave others to the processor.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.tflite.flatbuffer import (
    Node,
    add_buffer,
    add_ints,
    add_tensor,
    nodes,
    opcode,
    pack,
    producers,
    rank,
    schema,
)

GREATEST_RANK = 4
PADS = ("PAD", "PADV2", "MIRROR_PAD")
ELEMENTWISE = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")


def delegate_faults(
    tree: schema.ModelT, graphs: Sequence[schema.SubGraphT] | None = None
) -> list[str]:
    """Returns what is wrong with a TFLite model for GPU delegates, in words; empty if nothing.

    Args:
        tree: as `export.tflite.flatbuffer.unpack` returns it, with weights in float.
        graphs: which of its graphs; None is all.
    """
    faults: list[str] = []
    for graph in tree.subgraphs if graphs is None else graphs:
        listed = nodes(tree, graph)
        made_by = {int(tensor): name for name, each in listed for tensor in each.outputs}
        for node in listed:
            tensor = graph.tensors[node.operator.outputs[0]].name.decode()
            found = _faults(graph, node, made_by)
            faults.extend(f"{node.name} {tensor!r}: {fault}" for fault in found)
    return faults


def _faults(graph: schema.SubGraphT, node: Node, made_by: Mapping[int, str]) -> Iterator[str]:
    """Yields what is wrong with an operation; `made_by` has the operation of computed tensors."""
    name, operator = node
    options = operator.builtinOptions
    inputs = [int(tensor) for tensor in operator.inputs]
    varying = {*made_by, *map(int, graph.inputs)}
    if _lower_operands(graph, node):
        yield "an operand of a lower rank than the result is broadcast wrongly"
    if name == "MAX_POOL_2D" and made_by.get(inputs[0]) in PADS:
        yield "padding before it becomes its own, which is never the maximum"
    if name == "MIRROR_PAD" and options.mode != schema.MirrorPadMode.REFLECT:
        yield "only reflection is taken"
    if any(rank(graph, t) > GREATEST_RANK for t in (*inputs, *operator.outputs) if t >= 0):
        yield f"more than {GREATEST_RANK} dimensions are not taken"
    if name == "STRIDED_SLICE" and (
        options.shrinkAxisMask or options.newAxisMask or options.ellipsisMask
    ):
        yield "shrink_axis_mask and its like are not taken: slice, then reshape"
    if name == "BATCH_MATMUL" and inputs[0] not in varying:
        yield "a constant left operand is not taken"
    if varying.isdisjoint(inputs):
        yield "the result, always the same, is taken for zeros"


def _lower_operands(graph, node):
    """Returns the positions of an operation's inputs that are computed and of too low a rank.

    Constants of a lower rank are broadcast as they should be.
    """
    if node.name not in ELEMENTWISE:
        return []
    computed = {*producers(graph), *map(int, graph.inputs)}
    full = rank(graph, node.operator.outputs[0])
    return [
        position
        for position, tensor in enumerate(node.operator.inputs)
        if int(tensor) in computed and rank(graph, tensor) < full
    ]


def equalize_ranks(tree: schema.ModelT) -> None:
    """Reshapes computed operands to the rank of the sums and products that they are part of.

    The converter drops such reshapes, as broadcasting does without them: it adds (17, 64) to
    (1, 17, 64).

    Args:
        tree: changed in place.
    """
    for graph in tree.subgraphs:
        for node in nodes(tree, graph):
            for position in _lower_operands(graph, node):
                _reshape(tree, graph, node.operator, position)


def _reshape(tree, graph, operator, position):
    tensor = int(operator.inputs[position])
    old = graph.tensors[tensor]
    missing = rank(graph, operator.outputs[0]) - len(old.shape)
    shape = np.array([1] * missing + list(old.shape))
    label = old.name + b"/equal_rank"
    reshape = schema.OperatorT(
        opcode(tree, "RESHAPE"),
        inputs=[tensor, add_ints(tree, graph, shape, label + b"/shape")],
        outputs=[add_tensor(graph, shape, old.type, label)],
        builtinOptionsType=schema.BuiltinOptions.ReshapeOptions,
        builtinOptions=schema.ReshapeOptionsT(shape.tolist()),
    )
    operator.inputs = list(operator.inputs)
    operator.inputs[position] = reshape.outputs[0]
    graph.operators.insert(graph.operators.index(operator), reshape)


def fold_constants(tree: schema.ModelT) -> None:
    """Replaces operations on constants by their results, where the converter left any.

    Args:
        tree: changed in place.
    """
    for graph in tree.subgraphs:
        if folded := _constant_operations(graph):
            for tensor, values in _computed(tree, graph, folded).items():
                graph.tensors[tensor].buffer = add_buffer(tree, values)
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
    """Returns the results of operations, by the indices of tensors."""
    read = {graph.tensors[tensor].buffer for each in operators for tensor in each.inputs}
    outputs = [int(tensor) for each in operators for tensor in each.outputs]
    part = schema.SubGraphT(graph.tensors, [], outputs, operators)
    buffers = [
        buffer if index in read else schema.BufferT() for index, buffer in enumerate(tree.buffers)
    ]
    model = schema.ModelT(tree.version, tree.operatorCodes, [part], buffers=buffers)
    interpreter = Interpreter(model_content=bytes(pack(model)))
    interpreter.allocate_tensors()
    interpreter.invoke()
    return {tensor: interpreter.get_tensor(tensor) for tensor in outputs}


def _remove_unused(tree):
    """Removes the tensors that no operation reads or writes any longer, and their contents."""
    dropped = set()
    for index, graph in enumerate(tree.subgraphs):
        owners = [graph, *graph.operators]
        used = {int(t) for each in owners for part in (each.inputs, each.outputs) for t in part}
        kept = sorted(used - {-1})  # -1: left out
        place = {-1: -1, **{old: new for new, old in enumerate(kept)}}
        dropped |= {tensor.buffer for i, tensor in enumerate(graph.tensors) if i not in place}
        graph.tensors = [graph.tensors[old] for old in kept]
        for owner in owners:
            owner.inputs = [place[int(tensor)] for tensor in owner.inputs]
            owner.outputs = [place[int(tensor)] for tensor in owner.outputs]
        for signature in tree.signatureDefs or []:
            if signature.subgraphIndex == index:
                for entry in (*signature.inputs, *signature.outputs):
                    entry.tensorIndex = place[entry.tensorIndex]
    for buffer in dropped - {tensor.buffer for graph in tree.subgraphs for tensor in graph.tensors}:
        tree.buffers[buffer].data = None
