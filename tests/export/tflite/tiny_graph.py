"""TFLite files of a few operations, built by hand: what the exporter never writes."""

import pathlib

import numpy as np

from keras_vit.export.tflite.flatbuffer import (
    add_buffer,
    add_ints,
    add_tensor,
    opcode,
    pack,
    schema,
    unpack,
)

FLOAT = schema.TensorType.FLOAT32


class TinyGraph:
    """A graph from `image` to what the last operation gives, `logits`."""

    def __init__(self, *shape: int):
        self.graph = schema.SubGraphT(tensors=[], operators=[])
        self.tree = schema.ModelT(3, [], [self.graph], buffers=[schema.BufferT()])
        self.image = add_tensor(self.graph, shape, FLOAT, b"image")

    def ints(self, *values) -> int:
        return add_ints(self.tree, self.graph, np.array(values), b"ints")

    def floats(self, *shape: int) -> int:
        values = np.random.default_rng(len(self.tree.buffers)).normal(0, 0.5, shape)
        buffer = add_buffer(self.tree, values.astype("float32"))
        return add_tensor(self.graph, shape, FLOAT, b"floats", buffer)

    def add(self, name: str, inputs: list[int], shape: tuple, kind: str, **options) -> int:
        """Adds an operation with options of the schema's `kind`, and returns what it gives."""
        result = add_tensor(self.graph, shape, FLOAT, b"logits")
        operation = schema.OperatorT(
            opcode(self.tree, name),
            inputs,
            [result],
            builtinOptionsType=getattr(schema.BuiltinOptions, kind),
            builtinOptions=getattr(schema, f"{kind}T")(**options),
        )
        self.graph.operators.append(operation)
        return result

    def finished(self) -> schema.ModelT:
        """Returns the tree, as a file's."""
        last = self.graph.operators[-1].outputs[0]
        self.graph.inputs, self.graph.outputs = [self.image], [last]
        ends = [schema.TensorMapT("image", self.image)], [schema.TensorMapT("logits", last)]
        self.tree.signatureDefs = [schema.SignatureDefT(*ends, "serving_default")]
        return unpack(bytes(pack(self.tree)))

    def write(self, file: pathlib.Path) -> pathlib.Path:
        file.write_bytes(pack(self.finished()))
        return file


def add_of_unequal_ranks() -> TinyGraph:
    """(17, 8) + a constant of (1, 17, 8)."""
    graph = TinyGraph(1, 1, 17, 8)
    inputs = [graph.image, graph.floats(8, 8), graph.floats(8)]
    rows = graph.add("FULLY_CONNECTED", inputs, (17, 8), "FullyConnectedOptions")
    graph.add("ADD", [rows, graph.floats(1, 17, 8)], (1, 17, 8), "AddOptions")
    return graph


def padded_maximum() -> TinyGraph:
    """Zeros around a feature map whose maximum is taken."""
    graph = TinyGraph(1, 8, 8, 4)
    pads = graph.ints([0, 0], [1, 1], [1, 1], [0, 0])
    padded = graph.add("PAD", [graph.image, pads], (1, 10, 10, 4), "PadOptions")
    pool = {"strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 3, "padding": 1}
    graph.add("MAX_POOL_2D", [padded], (1, 4, 4, 4), "Pool2DOptions", **pool)
    return graph


def five_dimensions() -> TinyGraph:
    graph = TinyGraph(1, 4, 4, 4)
    inputs = [graph.image, graph.ints(1, 2, 2, 4, 4)]
    high = graph.add("RESHAPE", inputs, (1, 2, 2, 4, 4), "ReshapeOptions", newShape=[1, 2, 2, 4, 4])
    inputs = [high, graph.ints(1)]
    graph.add("SUM", inputs, (1, 2, 4, 4), "ReducerOptions", keepDims=False)
    return graph


def shrinking_slice() -> TinyGraph:
    graph = TinyGraph(1, 4, 8)
    inputs = [graph.image, graph.ints(0, 0, 0), graph.ints(1, 1, 8), graph.ints(1, 1, 1)]
    graph.add("STRIDED_SLICE", inputs, (1, 8), "StridedSliceOptions", shrinkAxisMask=2)
    return graph


def constant_left() -> TinyGraph:
    graph = TinyGraph(1, 8, 4)
    graph.add("BATCH_MATMUL", [graph.floats(1, 2, 8), graph.image], (1, 2, 4), "BatchMatMulOptions")
    return graph


def slice_of_a_constant() -> TinyGraph:
    """Two products, each of rows with a part of a constant."""
    graph = TinyGraph(1, 2, 3, 8)
    inputs = [graph.image, graph.ints(2, 3, 8)]
    rows = graph.add("RESHAPE", inputs, (2, 3, 8), "ReshapeOptions", newShape=[2, 3, 8])
    inputs = [graph.floats(2, 8, 7), graph.ints(0, 0, 1), graph.ints(2, 8, 6), graph.ints(1, 1, 1)]
    part = graph.add("STRIDED_SLICE", inputs, (2, 8, 5), "StridedSliceOptions")
    graph.add("BATCH_MATMUL", [rows, part], (2, 3, 5), "BatchMatMulOptions")
    return graph


def symmetric_padding() -> TinyGraph:
    graph = TinyGraph(1, 4, 4, 2)
    pads = graph.ints([0, 0], [1, 1], [1, 1], [0, 0])
    graph.add("MIRROR_PAD", [graph.image, pads], (1, 6, 6, 2), "MirrorPadOptions", mode=1)
    return graph
