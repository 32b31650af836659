import keras
import numpy as np
import pytest

from benchmarks.errors_in_runtimes import with_noise
from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.tflite import flatbuffer as files
from keras_vit.export.tflite import gpu_delegate_fixes as fixes
from keras_vit.export.tflite.flatbuffer import add_tensor, pack, schema
from keras_vit.export.verification.runtimes import open_gpu
from keras_vit.layers import MAPHead, RootPooling
from keras_vit.layers.resnet_units import POOL_PADDINGS
from tests.export.conftest import run

FLOAT = schema.TensorType.FLOAT32


def noise(*shape):
    return np.random.default_rng(0).normal(-0.5, 1, shape).astype("float32")


def tiny_graph(shape, *operations):
    """Returns the tree of a file from `image` to what the last operation gives, `logits`.

    Operations are (name, inputs, shape, options in the schema); an input is a constant, or the
    number of the operation that gives it: 0 is the image.
    """
    graph = schema.SubGraphT(tensors=[], operators=[])
    tree = schema.ModelT(3, [], [graph], buffers=[schema.BufferT()])
    results = [add_tensor(graph, shape, FLOAT, b"image")]

    def tensor_of(given):
        if isinstance(given, int):
            return results[given]
        if given.dtype != np.float32:
            return files.add_ints(tree, graph, given, b"ints")
        return add_tensor(graph, given.shape, FLOAT, b"floats", files.add_buffer(tree, given))

    for name, inputs, shape, options in operations:
        inputs = [tensor_of(given) for given in inputs]
        results.append(add_tensor(graph, shape, FLOAT, b"logits"))
        kind = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        code = files.opcode(tree, name)
        graph.operators.append(schema.OperatorT(code, inputs, [results[-1]], kind, options))
    graph.inputs, graph.outputs = results[:1], results[-1:]
    ends = [schema.TensorMapT("image", results[0])], [schema.TensorMapT("logits", results[-1])]
    tree.signatureDefs = [schema.SignatureDefT(*ends, "serving_default")]
    return files.unpack(bytes(pack(tree)))


AROUND = np.array([[0, 0], [1, 1], [1, 1], [0, 0]])
POOL = {"strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 3, "padding": 1}
FIRST_ROW = [np.array([0, 0, 0]), np.array([1, 1, 8]), np.array([1, 1, 1])]
COLUMNS = [np.array([0, 0, 1]), np.array([2, 8, 6]), np.array([1, 1, 1])]
DENSE = [0, noise(8, 8), noise(8)]
ADDED = ("ADD", [1, noise(1, 17, 8)], (1, 17, 8), schema.AddOptionsT())
LOWER_RANK = [(1, 1, 17, 8), ("FULLY_CONNECTED", DENSE, (17, 8), schema.FullyConnectedOptionsT())]
LOWER_RANK.append(ADDED)
PADDED_MAXIMUM = [(1, 8, 8, 4), ("PAD", [0, AROUND], (1, 10, 10, 4), schema.PadOptionsT())]
PADDED_MAXIMUM.append(("MAX_POOL_2D", [1], (1, 4, 4, 4), schema.Pool2DOptionsT(**POOL)))
SLICED_CONSTANT = [  # Rows times a part of a constant.
    (1, 2, 3, 8),
    ("RESHAPE", [0, np.array([2, 3, 8])], (2, 3, 8), schema.ReshapeOptionsT([2, 3, 8])),
    ("STRIDED_SLICE", [noise(2, 8, 7), *COLUMNS], (2, 8, 5), schema.StridedSliceOptionsT()),
    ("BATCH_MATMUL", [1, 2], (2, 3, 5), schema.BatchMatMulOptionsT()),
]
PLANTED = {
    "ADD 'logits': an operand of a lower rank": LOWER_RANK,
    "MAX_POOL_2D 'logits': padding before it": PADDED_MAXIMUM,
    "STRIDED_SLICE 'logits': the result, always the same": SLICED_CONSTANT,
    "SUM 'logits': more than 4 dimensions": [
        (1, 2, 2, 4, 4),
        ("SUM", [0, np.array([1])], (1, 2, 4, 4), schema.ReducerOptionsT()),
    ],
    "STRIDED_SLICE 'logits': shrink_axis_mask": [
        (1, 4, 8),
        ("STRIDED_SLICE", [0, *FIRST_ROW], (1, 8), schema.StridedSliceOptionsT(shrinkAxisMask=2)),
    ],
    "BATCH_MATMUL 'logits': a constant left operand": [
        (1, 8, 4),
        ("BATCH_MATMUL", [noise(1, 2, 8), 0], (1, 2, 4), schema.BatchMatMulOptionsT()),
    ],
    "MIRROR_PAD 'logits': only reflection": [
        (1, 4, 4, 2),
        ("MIRROR_PAD", [0, AROUND], (1, 6, 6, 2), schema.MirrorPadOptionsT(mode=1)),
    ],
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault):
    faults = fixes.delegate_faults(tiny_graph(*PLANTED[fault]))
    assert any(each.startswith(fault) for each in faults), faults


@pytest.mark.parametrize("graph", [LOWER_RANK, PADDED_MAXIMUM, SLICED_CONSTANT])
def test_what_is_found_is_wrong_on_a_gpu(gpu, graph, tmp_path):
    file, shape = tmp_path / "m.tflite", graph[0]
    file.write_bytes(pack(tiny_graph(*graph)))
    # Below zero, so that padding with zeros is the maximum wherever it is looked at.
    image = -np.random.default_rng(0).uniform(1, 2, shape).astype("float32")
    expected = run(file, image)
    outputs, delegation = open_gpu(file).run(image)
    assert np.abs(outputs - expected).max() > 0.1 * np.abs(expected).max()
    # Without a word: nothing falls back to the processor.
    assert delegation.complete and delegation.fallbacks == ()


def test_mending_leaves_nothing_to_find_and_none_is_refused(tmp_path, make_vit, monkeypatch):
    before, after = tmp_path / "before.tflite", tmp_path / "after.tflite"
    tree = tiny_graph(*LOWER_RANK)
    before.write_bytes(pack(tree))
    fixes.equalize_ranks(tree)
    assert fixes.delegate_faults(tree) == []
    after.write_bytes(pack(tree))
    image = noise(1, 1, 17, 8)
    np.testing.assert_array_equal(run(after, image), run(before, image))
    monkeypatch.setattr("keras_vit.export.tflite.to_tflite.equalize_ranks", lambda tree: None)
    with pytest.raises(ExportError, match=r"every delegate computes right.*ADD"):
        export.to_tflite(make_vit(num_layers=1), tmp_path / "m.tflite")
    assert {*tmp_path.iterdir()} == {before, after}


def test_layers_of_others_are_warned_of(make_vit, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr("keras_vit.export.tflite.to_tflite.delegate_faults", lambda *_: ["a fault"])
    model = keras.Sequential([make_vit(num_layers=1, num_classes=None), keras.layers.Dense(3)])
    file = export.to_tflite(model, tmp_path / "m.tflite")
    assert file.exists() and "will not compute all of this file right: a fault" in caplog.text


@pytest.mark.parametrize("padding", POOL_PADDINGS)
@pytest.mark.parametrize("size", [(8, 6), (7, 5), (8, 5), (1, 2)])
def test_pooling_over_joined_cells_has_the_same_bits(padding, size):
    layer, features = RootPooling(padding), noise(2, *size, 3)
    np.testing.assert_array_equal(fixes.root_pooling(layer, features), layer(features))


def test_pooling_with_the_query_in_the_keys_weights_is_the_same():
    layer = MAPHead(num_heads=2, mlp_dim=16)
    layer.build((None, 5, 8))
    with_noise(layer)
    tokens = noise(3, 5, 8)
    np.testing.assert_allclose(fixes.map_head(layer, tokens), layer(tokens), atol=1e-6)
