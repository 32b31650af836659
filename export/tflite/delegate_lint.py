"""What GPU delegates compute wrongly without a word, or do not take."""

from collections.abc import Sequence

from ai_edge_litert import schema_py_generated as schema

from export.tflite.equal_ranks import lower_operands
from export.tflite.graph_nodes import Node, nodes, producers, rank

GREATEST_RANK = 4
PADS = ("PAD", "PADV2", "MIRROR_PAD")


def delegate_faults(
    tree: schema.ModelT, graphs: Sequence[schema.SubGraphT] | None = None
) -> list[str]:
    """Returns what is wrong with a TFLite model for GPU delegates, in words; empty if nothing.

    Args:
        tree: as `export.tflite.flatbuffer_tree.unpack` returns it, with weights in float.
        graphs: which of its graphs; None is all.
    """
    faults: list[str] = []
    for graph in tree.subgraphs if graphs is None else graphs:
        listed = nodes(tree, graph)
        names = {id(node.operator): node.name for node in listed}
        made_by = {tensor: names[id(each)] for tensor, each in producers(graph).items()}
        for node in listed:
            found = [fault for rule in RULES if (fault := rule(graph, node, made_by))]
            tensor = graph.tensors[node.operator.outputs[0]].name.decode()
            faults.extend(f"{node.name} {tensor!r}: {fault}" for fault in found)
    return faults


def _unequal_ranks(graph, node: Node, made_by):
    if lower_operands(graph, node.name, node.operator):
        return "an operand of a lower rank than the result is broadcast wrongly"


def _padded_maximum(graph, node: Node, made_by):
    if node.name == "MAX_POOL_2D" and made_by.get(int(node.operator.inputs[0])) in PADS:
        return "padding before it becomes its own, which is never the maximum"


def _symmetric_padding(graph, node: Node, made_by):
    options = node.operator.builtinOptions
    if node.name == "MIRROR_PAD" and options.mode != schema.MirrorPadMode.REFLECT:
        return "only reflection is taken"


def _high_rank(graph, node: Node, made_by):
    tensors = [t for t in (*node.operator.inputs, *node.operator.outputs) if t >= 0]
    if any(rank(graph, tensor) > GREATEST_RANK for tensor in tensors):
        return f"more than {GREATEST_RANK} dimensions are not taken"


def _shrinking_slice(graph, node: Node, made_by):
    options = node.operator.builtinOptions
    if node.name == "STRIDED_SLICE" and (
        options.shrinkAxisMask or options.newAxisMask or options.ellipsisMask
    ):
        return "shrink_axis_mask and its like are not taken: slice, then reshape"


def _constant_left(graph, node: Node, made_by):
    left = int(node.operator.inputs[0])
    if node.name == "BATCH_MATMUL" and left not in {*made_by, *map(int, graph.inputs)}:
        return "a constant left operand is not taken"


def _constant_result(graph, node: Node, made_by):
    if all(int(t) not in made_by and t not in graph.inputs for t in node.operator.inputs):
        return "the result, always the same, is taken for zeros"


RULES = (
    _unequal_ranks,
    _padded_maximum,
    _symmetric_padding,
    _high_rank,
    _shrinking_slice,
    _constant_left,
    _constant_result,
)
