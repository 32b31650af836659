"""Makes graphs that GPU delegates compute right: respells layers, finds and mends faults.

Delegates compute some operations wrongly without a word, and leave others to the processor.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_vit.layers import MAPHead, RootPooling
from keras_vit.models.inner_layers import with_replaced_layers
from keras_vit.type_hints import Tensor

from . import flatbuffer as files

GREATEST_RANK = 4
PADS = ("PAD", "PADV2", "MIRROR_PAD")
COMPUTED_ONCE = ("BROADCAST_TO", "CONCATENATION", "RESHAPE")
ELEMENTWISE = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")


def for_delegates(model: keras.Model) -> keras.Model:
    """Returns a model that computes the same, on the same weights, up to rounding.

    Both are functional models of one input and one output.
    """
    return with_replaced_layers(model, {MAPHead: map_head, RootPooling: root_pooling})


def map_head(layer: MAPHead, tokens: Tensor) -> Tensor:
    """Attention pooling whose query, a constant, is multiplied into the keys' weights.

    Delegates do not take a constant left operand, nor a slice that drops an axis, and OpenVINO no
    int8 constant with a matrix for each head. The softmax cancels the keys' bias.
    """
    length, channels = tokens.shape[1:]
    query = layer.project(layer.query, layer.probe) * layer.scale
    keys = ops.reshape(layer.key.kernel, (channels, layer.num_heads, layer.head_size))
    kernel = ops.sum(keys * ops.reshape(query, keys.shape[1:]), axis=-1)
    logits = ops.matmul(ops.reshape(tokens, (-1, channels)), kernel)
    logits = ops.transpose(ops.reshape(logits, (-1, length, layer.num_heads)), (0, 2, 1))
    logits = ops.reshape(logits, (-1, layer.num_heads, 1, length))
    x = layer.weighted_values(ops.softmax(logits, axis=-1), tokens)
    return ops.reshape(x + layer.mlp(layer.norm(x)), (-1, channels))


def root_pooling(layer: RootPooling, inputs: Tensor) -> Tensor:
    """The maximum of windows over cells that are joined to the border, not padded.

    A delegate mistakes padding, and cells of zeros, for the pooling's own padding, which is never
    the maximum, and has no padding that repeats the border. The larger of a border cell and zero
    gives the same maximum as a zero beside that cell. The cells after the last are read only where
    the number of cells is odd.
    """
    x = _bordered(layer.padding, inputs, inputs[:, :1], inputs[:, -1:], axis=1)
    x = _bordered(layer.padding, x, x[:, :, :1], x[:, :, -1:], axis=2)
    return ops.max_pool(x, 3, 2, "valid", data_format="channels_last")


def _bordered(padding, x, first, last, axis):
    if padding == "zero":
        first, last = ops.relu(first), ops.relu(last)
    return ops.concatenate([first, x, last] if x.shape[axis] % 2 else [first, x], axis=axis)


def delegate_faults(
    tree: files.schema.ModelT, graphs: Sequence[files.schema.SubGraphT] | None = None
) -> list[str]:
    """Returns what is wrong with a TFLite model for GPU delegates, in words; empty if nothing.

    `tree` is one that `unpack` returned, with weights in float; `graphs` are some of its graphs,
    None all.
    """
    faults: list[str] = []
    for graph in tree.subgraphs if graphs is None else graphs:
        listed = files.nodes(tree, graph)
        made_by = files.producers(listed)
        for name, operator in listed:
            tensor = graph.tensors[operator.outputs[0]].name.decode()
            found = _faults(graph, name, operator, made_by)
            faults.extend(f"{name} {tensor!r}: {fault}" for fault in found)
    return faults


def _faults(graph, name, operator, made_by):
    """Yields what is wrong with an operation; `made_by` is that of `producers`."""
    options = operator.builtinOptions
    inputs = [int(tensor) for tensor in operator.inputs]
    varying = {*made_by, *map(int, graph.inputs)}
    if _lower_operands(graph, name, operator, varying):
        yield "an operand of a lower rank than the result is broadcast wrongly"
    if name == "MAX_POOL_2D" and made_by.get(inputs[0]) in PADS:
        yield "padding before it becomes its own, which is never the maximum"
    if name == "MIRROR_PAD" and options.mode != files.schema.MirrorPadMode.REFLECT:
        yield "only reflection is taken"
    if any(files.rank(graph, t) > GREATEST_RANK for t in (*inputs, *operator.outputs) if t >= 0):
        yield f"more than {GREATEST_RANK} dimensions are not taken"
    if name == "STRIDED_SLICE" and (
        options.shrinkAxisMask or options.newAxisMask or options.ellipsisMask
    ):
        yield "shrink_axis_mask and its like are not taken: slice, then reshape"
    if name == "BATCH_MATMUL" and inputs[0] not in varying:
        yield "a constant left operand is not taken"
    if varying.isdisjoint(inputs):
        yield "the result, always the same, is taken for zeros"


def _lower_operands(graph, name, operator, varying):
    """Returns the positions of an operation's inputs that are computed and of too low a rank.

    Constants of a lower rank are broadcast as they should be.
    """
    if name not in ELEMENTWISE:
        return []
    full = files.rank(graph, operator.outputs[0])
    return [
        position
        for position, tensor in enumerate(operator.inputs)
        if int(tensor) in varying and files.rank(graph, tensor) < full
    ]


def compute_constants(tree: files.schema.ModelT) -> None:
    """Computes tables that are always the same, of which the converter leaves large ones undone.

    Changes `tree`, whose constants are float32, in place.
    """
    for graph in tree.subgraphs:
        for name, operator in files.nodes(tree, graph):
            if name not in COMPUTED_ONCE:
                continue
            sources = operator.inputs if name == "CONCATENATION" else operator.inputs[:1]
            values = [_constant(tree, graph.tensors[tensor]) for tensor in sources]
            if any(value is None for value in values):
                continue
            result = graph.tensors[operator.outputs[0]]
            if name == "CONCATENATION":
                table = np.concatenate(values, operator.builtinOptions.axis)
            elif name == "RESHAPE":
                table = values[0].reshape(result.shape)
            else:
                table = np.broadcast_to(values[0], result.shape)
            result.buffer = files.add_buffer(tree, table)
            graph.operators.remove(operator)


def _constant(tree, tensor):
    data = tree.buffers[tensor.buffer].data
    if data is None or not len(data) or tensor.type != files.schema.TensorType.FLOAT32:
        return None
    return np.frombuffer(data, "float32").reshape(tensor.shape)


def equalize_ranks(tree: files.schema.ModelT) -> None:
    """Reshapes computed operands to the rank of the sums and products that they are part of.

    The converter drops such reshapes, as broadcasting does without them: it adds (17, 64) to
    (1, 17, 64). Changes `tree` in place.
    """
    for graph in tree.subgraphs:
        listed = files.nodes(tree, graph)
        varying = {*files.producers(listed), *map(int, graph.inputs)}
        for name, operator in listed:
            for position in _lower_operands(graph, name, operator, varying):
                _reshape(tree, graph, operator, position)


def _reshape(tree, graph, operator, position):
    tensor = int(operator.inputs[position])
    old = graph.tensors[tensor]
    missing = files.rank(graph, operator.outputs[0]) - len(old.shape)
    shape = np.array([1] * missing + list(old.shape))
    label = old.name + b"/equal_rank"
    reshape = files.schema.OperatorT(
        files.opcode(tree, "RESHAPE"),
        inputs=[tensor, files.add_ints(tree, graph, shape, label + b"/shape")],
        outputs=[files.add_tensor(graph, shape, old.type, label)],
        builtinOptionsType=files.schema.BuiltinOptions.ReshapeOptions,
        builtinOptions=files.schema.ReshapeOptionsT(shape.tolist()),
    )
    operator.inputs = list(operator.inputs)
    operator.inputs[position] = reshape.outputs[0]
    graph.operators.insert(graph.operators.index(operator), reshape)
