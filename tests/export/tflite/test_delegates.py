"""Layers and graphs that delegates compute right; graphs of a few operations, built by hand."""

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.tflite.flatbuffer_and_metadata import (
    TFLiteFile,
    add_buffer,
    add_ints,
    add_tensor,
    nodes,
    opcode,
    pack,
    producers,
    schema,
    unpack,
)
from keras_vit.export.tflite.gpu_delegate_fixes import (
    delegate_faults,
    equalize_ranks,
    for_delegates,
    map_head,
    root_pooling,
)
from keras_vit.export.verification.runtimes import open_gpu
from keras_vit.layers import MAPHead, RootPooling
from keras_vit.layers.resnet_units import POOL_PADDINGS
from tests.export.conftest import run

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

    def write(self, file):
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


PLANTED = {
    add_of_unequal_ranks: "ADD 'logits': an operand of a lower rank",
    padded_maximum: "MAX_POOL_2D 'logits': padding before it",
    five_dimensions: "RESHAPE 'logits': more than 4 dimensions",
    shrinking_slice: "STRIDED_SLICE 'logits': shrink_axis_mask",
    constant_left: "BATCH_MATMUL 'logits': a constant left operand",
    slice_of_a_constant: "STRIDED_SLICE 'logits': the result, always the same",
    symmetric_padding: "MIRROR_PAD 'logits': only reflection",
}


@pytest.mark.parametrize("graph", PLANTED)
def test_a_planted_fault_is_found(graph):
    faults = delegate_faults(graph().finished())
    assert any(fault.startswith(PLANTED[graph]) for fault in faults), faults


@pytest.mark.parametrize("graph", [add_of_unequal_ranks, padded_maximum, slice_of_a_constant])
def test_what_is_found_is_wrong_on_a_gpu(gpu, graph, tmp_path):
    file = graph().write(tmp_path / "m.tflite")
    shape = Interpreter(str(file)).get_input_details()[0]["shape"]
    # Below zero, so that padding with zeros is the maximum wherever it is looked at.
    image = -np.random.default_rng(0).uniform(1, 2, shape).astype("float32")
    expected = run(file, image)
    outputs, delegation = open_gpu(file).run(image)
    assert np.abs(outputs - expected).max() > 0.1 * np.abs(expected).max()
    # Without a word: nothing falls back to the processor.
    assert delegation.complete and delegation.fallbacks == ()


def test_mending_leaves_nothing_to_find_and_the_same_bits(tmp_path):
    graph, after = add_of_unequal_ranks(), tmp_path / "after.tflite"
    before, tree = graph.write(tmp_path / "before.tflite"), graph.finished()
    equalize_ranks(tree)
    assert delegate_faults(tree) == []
    after.write_bytes(pack(tree))
    image = np.random.default_rng(0).normal(0, 1, (1, 1, 17, 8)).astype("float32")
    np.testing.assert_array_equal(run(after, image), run(before, image))


def test_an_export_that_delegates_compute_wrong_fails(make_vit, monkeypatch, tmp_path):
    monkeypatch.setattr("keras_vit.export.tflite.to_tflite.equalize_ranks", lambda tree: None)
    with pytest.raises(ExportError, match=r"every delegate computes right.*ADD"):
        export.to_tflite(make_vit(num_layers=1), tmp_path / "m.tflite")
    assert list(tmp_path.iterdir()) == []


def test_layers_of_others_are_warned_of(make_vit, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr("keras_vit.export.tflite.to_tflite.delegate_faults", lambda *_: ["a fault"])
    model = keras.Sequential([make_vit(num_layers=1, num_classes=None), keras.layers.Dense(3)])
    file = export.to_tflite(model, tmp_path / "m.tflite")
    assert file.exists() and "will not compute all of this file right: a fault" in caplog.text


def noise(*shape):
    return np.random.default_rng(0).normal(-0.5, 1, shape).astype("float32")


@pytest.mark.parametrize("padding", POOL_PADDINGS)
@pytest.mark.parametrize("size", [(8, 6), (7, 5), (8, 5), (1, 2)])
def test_pooling_over_joined_cells_has_the_same_bits(padding, size):
    layer, features = RootPooling(padding), noise(2, *size, 3)
    expected = keras.ops.convert_to_numpy(layer(features))
    np.testing.assert_array_equal(root_pooling(layer, features), expected)


def test_pooling_with_the_query_in_the_keys_weights_is_the_same(randomize):
    layer = MAPHead(num_heads=2, mlp_dim=16)
    layer.build((None, 5, 8))
    randomize(layer)
    tokens = noise(3, 5, 8)
    expected = keras.ops.convert_to_numpy(layer(tokens))
    np.testing.assert_allclose(map_head(layer, tokens), expected, atol=1e-6)


def test_a_model_keeps_its_weights_and_its_name(make_vit, images):
    model = make_vit(classifier="map")
    respelled = for_delegates(model)
    assert respelled.name == model.name
    assert {id(weight) for weight in respelled.weights} == {id(weight) for weight in model.weights}
    np.testing.assert_allclose(respelled(images), model(images), atol=1e-5)


def test_no_product_of_heads_has_a_constant(make_vit, tmp_path):
    tree = TFLiteFile(export.to_tflite(make_vit(classifier="map"), tmp_path / "m.tflite")).tree
    (graph,) = tree.subgraphs
    products = [each for name, each in nodes(tree, graph) if name == "BATCH_MATMUL"]
    assert products and {int(i) for each in products for i in each.inputs} <= {*producers(graph)}
