import hashlib

import flatbuffers.table
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.tflite.flatbuffer import pack, unpack
from keras_vit.export.tflite.layer_errors import layer_errors
from keras_vit.export.tflite.mediapipe_metadata import add_metadata
from keras_vit.training.inference.interface import Interface


def weights_of(tree):
    return [bytes(tree.buffers[tensor.buffer].data) for tensor in tree.subgraphs[0].tensors]


def test_weights_behind_the_model_come_back_into_it():
    weights = [b"x" * 64, b"y" * 32]
    buffers = [schema.BufferT(offset=4096, size=64), schema.BufferT(offset=4160, size=32)]
    graph = schema.SubGraphT([schema.TensorT(buffer=1), schema.TensorT(buffer=2)], [], [])
    tree = schema.ModelT(3, [], [graph], buffers=[schema.BufferT(), *buffers])
    tree.metadata = [schema.MetadataT("buffer_location")]
    tree = unpack(bytes(pack(tree)).ljust(4096) + b"".join(weights))
    assert weights_of(tree) == weights and tree.metadata == []
    assert weights_of(unpack(bytes(pack(tree)))) == weights


def test_the_metadata_are_those_that_mediapipe_read():
    tree = schema.ModelT(3, buffers=[schema.BufferT()])
    add_metadata(tree, "vit", Interface((8, 8), (0, 1), "how", class_names=["crow"]))
    digest = hashlib.sha256(bytes(tree.buffers[-1].data)).hexdigest()
    assert digest == "80e6c175df68ab691c2c500c0c04b1621c3896052e5a3c171ae4e1068ab69a2a"


@pytest.mark.rows(("logits", "softmax", 2), ("logits", "sigmoid", 1), ("probabilities", None, 0))
def test_masks_say_what_mediapipe_computes_of_them(output, activation, byte):
    tree = schema.ModelT(3, buffers=[schema.BufferT()])
    interface = Interface((8, 8), (0, 1), "how", output, activation, classifies="pixel")
    add_metadata(tree, "segmenter", interface)
    content = bytes(tree.buffers[-1].data)
    options = content[content.index(b"V001") - 4 :]
    table = flatbuffers.table.Table(options, int.from_bytes(options[:4], "little"))
    place = table.Offset(4)
    assert b"SEGMENTER_METADATA" in content
    assert (options[table.Pos + place] if place else 0) == byte


@pytest.mark.rows(("probabilities", True), ("logits", False))
def test_the_smallest_threshold_is_that_of_mediapipe(output, is_written):
    tree = schema.ModelT(3, buffers=[schema.BufferT()])
    interface = Interface((8, 8), (0, 1), "how", output, "sigmoid", thresholds=[0.5, 0.25])
    add_metadata(tree, "vit", interface)
    content = bytes(tree.buffers[-1].data)
    floats = np.frombuffer(content + b"\0" * (-len(content) % 4), "<f4")
    assert (0.25 in floats) == is_written


@pytest.fixture(scope="module")
def files(tiny, tiny_tflite, images, tmp_path_factory):
    quantized = tmp_path_factory.mktemp("tflite") / "int8.tflite"
    export.to_tflite(tiny, quantized, quantization="int8", calibration=images)
    return tiny_tflite, quantized


def test_every_operation_that_computes_has_its_layers_name_and_an_error(files, images):
    rows = layer_errors(*files, images[:2])
    dense = [row for row in rows if row.operation == "FULLY_CONNECTED"]
    names = [f"attention/{name}" for name in ("key", "value", "query", "out")]
    names = [
        f"encoder_block_00/{each}" for each in (*names, "mlp/hidden_dense", "mlp/output_dense")
    ]
    assert [row.layer for row in dense] == [*names, "logits"]
    assert {row.type for row in dense} == {"int8"} and all(0 < row.error < 0.2 for row in dense)
    assert rows[0].layer == "embedding/projection" and rows[0].inputs_error == 0
    assert not {"RESHAPE", "TRANSPOSE"} & {row.operation for row in rows}
    assert {row.error for row in layer_errors(files[0], files[0], images[:1])} == {0.0}


def test_a_bad_layer_is_where_the_error_exceeds_that_of_its_inputs(files, images, tmp_path):
    reference, _ = files
    tree = unpack(reference.read_bytes())
    tensors = tree.subgraphs[0].tensors
    dense = [each for each in tree.subgraphs[0].operators if len(each.inputs) == 3]
    (bad,) = [each for each in dense if b"output_dense" in tensors[each.outputs[0]].name]
    buffer = tree.buffers[tensors[bad.inputs[2]].buffer]
    buffer.data = np.frombuffer((buffer.data.view("float32") + 3).tobytes(), np.uint8)
    (tmp_path / "bad.tflite").write_bytes(pack(tree))
    rows = layer_errors(reference, tmp_path / "bad.tflite", images[:2])
    bad = next(row for row in rows if row.error > 2 * row.inputs_error)
    assert (bad.layer, bad.operation) == ("encoder_block_00/mlp/output_dense", "FULLY_CONNECTED")
    assert bad.inputs_error == 0 < bad.error


def test_a_file_of_another_model_is_refused(files, make_vit, images, tmp_path):
    renamed = unpack(files[1].read_bytes())
    for tensor in renamed.subgraphs[0].tensors:
        tensor.name = b"other/" + tensor.name
    (tmp_path / "other.tflite").write_bytes(pack(renamed))
    with pytest.raises(ExportError, match="same model"):
        layer_errors(files[0], tmp_path / "other.tflite", images[:1])
    renamed.subgraphs[0].outputs = []
    (tmp_path / "damaged.tflite").write_bytes(pack(renamed))
    with pytest.raises(ExportError, match=r"damaged\.tflite cannot be run"):
        layer_errors(files[0], tmp_path / "damaged.tflite", images[:1])
    layers = ({"num_layers": 2}, "names and layers of its own, encoder_block_01")
    for arguments, said in (({"num_classes": 3}, r"which gives \[1, 3\]"), layers):
        others = export.to_tflite(make_vit(**{"num_layers": 1} | arguments), tmp_path / "o.tflite")
        with pytest.raises(ExportError, match=rf"o\.tflite, .*{said}"):
            layer_errors(files[0], others, images[:1])
