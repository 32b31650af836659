import json
import sys

import keras
import numpy as np
import pytest

from keras_vit import export
from keras_vit.export.errors import ExportError, RuntimeMissing
from keras_vit.export.onnx import to_onnx
from keras_vit.training.inference.open_model import open_source
from tests.export.conftest import answer, verify
from tests.tiny_vit import tiny_vit

REASON = "the extra onnx is not installed: make test-runtimes"
names = ("onnx", "onnxruntime", "tf2onnx")
onnx, onnxruntime, _ = (pytest.importorskip(name, reason=REASON) for name in names)
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def plain(tiny, tmp_path_factory):
    return export.to_onnx(tiny, tmp_path_factory.mktemp("onnx") / "m.onnx")


def test_names_labels_and_any_batch(make_vit, images, tmp_path):
    model = make_vit(dtype="mixed_bfloat16", num_layers=1)
    file = export.to_onnx(model, tmp_path / "m.onnx", labels=list("abcde"), activation="sigmoid")
    texts = {each.key: each.value for each in onnx.load(file).metadata_props}
    assert texts["labels"].splitlines() == list("abcde")
    assert json.loads(texts["interface.json"])["activation"] == "sigmoid"
    session = onnxruntime.InferenceSession(file)
    (image,), (logits,) = session.get_inputs(), session.get_outputs()
    assert (image.name, image.type, image.shape[1:]) == ("image", "tensor(float)", [32, 32, 3])
    assert logits.name == "logits"
    for count in (1, 3, 8):
        assert session.run(None, {"image": images[:count]})[0].shape == (count, 5)
    model.class_names = list("edcba")
    order, activation = verify(model, file, images).failures
    assert "in another order" in order and "is 'sigmoid', the model's 'softmax'" in activation


@pytest.mark.parametrize("float16", [False, True])
def test_constants_of_layers_around_are_no_inputs(make_vit, images, tmp_path, float16):
    first = keras.layers.Normalization(mean=[127.5] * 3, variance=[127.5**2] * 3)
    model = keras.Sequential([keras.Input((32, 32, 3)), first, make_vit(num_layers=1)])
    file = export.to_onnx(model, tmp_path / "m.onnx", float16=float16)
    assert [each.name for each in onnx.load(file).graph.input] == ["image"]
    assert verify(model, file, images).ok


@pytest.mark.parametrize("classifier", ["token", "map"])
@pytest.mark.parametrize("float16", [False, True])
def test_normalizations_are_one_operation(make_vit, tmp_path, classifier, float16):
    model = make_vit(layer_norm_epsilon=3e-4, classifier=classifier)
    content = onnx.load(export.to_onnx(model, tmp_path / "m.onnx", float16=float16)).graph
    found = [node for node in content.node if node.op_type == "LayerNormalization"]
    assert len(found) == 2 * 2 + 1 + (classifier == "map")
    for node in found:
        (epsilon,) = (each.f for each in node.attribute if each.name == "epsilon")
        assert epsilon == pytest.approx(3e-4)
    assert not {"Sqrt", "Reciprocal", "ReduceMean", "GlobalAveragePool"} & {
        node.op_type for node in content.node
    }


def test_onnx_runtime_quantizes_them(tiny, plain, images, tmp_path):
    from onnxruntime import quantization

    small = tmp_path / "int8.onnx"
    only = {"per_channel": True, "op_types_to_quantize": ["MatMul", "Gemm"]}
    quantization.quantize_dynamic(plain, small, weight_type=quantization.QuantType.QInt8, **only)
    report = verify(tiny, small, images)
    assert report.ok and report.kind == "onnx-quantized"
    assert 0 < report.relative_error < 0.05
    content = onnx.load(small)
    for each in content.graph.initializer:
        if each.data_type == onnx.TensorProto.INT8 and len(each.dims) == 2:
            each.raw_data = each.raw_data[::-1]
    onnx.save(content, small)
    assert "cosine" in " ".join(verify(tiny, small, images).failures)


def test_predict_and_evaluate_read_them(tiny, plain, images):
    frozen = open_source(plain)
    np.testing.assert_allclose(frozen(images), answer(tiny, images), atol=1e-5)
    interface = frozen.interface
    assert (interface.image_size, interface.image_range) == ((32, 32), (0.0, 1.0))
    with pytest.raises(ValueError, match="a representation, which `keras-vit export onnx"):
        frozen.features(images)
    with pytest.raises(ValueError, match="layer"):
        open_source(plain, layer="block_00")


def test_large_weights_are_in_a_second_file(tiny, images, tmp_path, monkeypatch):
    monkeypatch.setattr(to_onnx, "FILE_LIMIT", to_onnx._GRAPH_SIZE + 1000)
    file = export.to_onnx(tiny, tmp_path / "m.onnx")
    weights = tmp_path / "m.onnx.data"
    assert {file, weights} == set(tmp_path.iterdir())
    report = verify(tiny, file, images)
    assert report.ok and report.size_bytes == file.stat().st_size + weights.stat().st_size
    identity = open_source(file).identity
    weights.write_bytes(weights.read_bytes()[::-1])
    assert open_source(file).identity != identity and not verify(tiny, file, images).ok
    weights.unlink()
    for opened in (lambda: verify(tiny, file, images), lambda: open_source(file)):
        with pytest.raises(ValueError, match=r"m\.onnx cannot be loaded .*m\.onnx\.data"):
            opened()


def test_activations_that_float16_does_not_hold_fail(make_vit, images, tmp_path):
    model = make_vit(num_layers=1)
    bias = model.get_layer("encoder_block_00").mlp.output_dense.bias
    table = model.get_layer("position_embedding").embedding
    channel = np.eye(1, table.shape[-1])[0]
    for position, overflows in ((0.0, False), (2e4, True)):
        bias.assign(6e4 * channel)
        table.assign(table + position * channel)
        file = export.to_onnx(model, tmp_path / "m.onnx", float16=True)
        found = " ".join(verify(model, file, images).failures)
        assert ("reaches inf, float16 ends at 65504" in found) == overflows, found
    bias.assign(8e4 * channel)
    with pytest.raises(ValueError, match=r"written: float16 ends at 65504\. Export float32\."):
        export.to_onnx(model, tmp_path / "large.onnx", float16=True)
    assert not (tmp_path / "large.onnx").exists()


@pytest.mark.parametrize("arguments", [{}, {"resnet": {"num_layers": (1,)}, "patch_size": 2}])
def test_float16_is_half_as_large_and_has_room_for_outliers(make_vit, images, tmp_path, arguments):
    from onnx.reference import ReferenceEvaluator

    model = make_vit(hidden_size=64, mlp_dim=256, **arguments)
    table = model.get_layer("position_embedding").embedding
    # Trained models have such channels, whose squares float16 does not hold.
    table.assign(keras.ops.slice_update(table, (0, 0, 7), np.full((*table.shape[:2], 1), 400.0)))
    whole = export.to_onnx(model, tmp_path / "float32.onnx")
    half = export.to_onnx(model, tmp_path / "float16.onnx", float16=True)
    report = verify(model, half, images)
    assert report.ok and report.kind == "float16", report
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    # ONNX Runtime computes in float32 on x86, this one in float16.
    (found,) = ReferenceEvaluator(str(half)).run(None, {"image": images})
    expected = answer(model, images)
    assert found.dtype == np.float32
    assert 0 < np.abs(found - expected).max() < 2e-2 * np.abs(expected).max()


def test_the_command(tiny, images, tmp_path, printed, caplog):
    tiny.save(tmp_path / "m.keras")
    np.savez(tmp_path / "images.npz", images=images)
    paths = [str(tmp_path / "m.keras"), f"--output={tmp_path / 'm.onnx'}"]
    options = ["--float16", "--module_output=representation", f"--data={tmp_path / 'images.npz'}"]
    shown = printed("export", "onnx", *paths, *options)
    assert "m.onnx (float16)" in shown and "largest error of representation" in shown
    assert "Gemm" not in caplog.text  # a warning of the converter


def test_layers_that_the_converter_does_not_know_are_named(images, tmp_path):
    core = tiny_vit(image_size=32, num_classes=None, num_layers=1)
    image, dense = keras.Input((32, 32, 3)), keras.layers.Dense
    model = keras.Sequential([image, core, dense(3, activation="gelu"), dense(2)])
    unknown = r"a layer that the converter to ONNX does not know: .*Erfc"
    with pytest.raises(ExportError, match=unknown):
        export.to_onnx(model, tmp_path / "m.onnx")
    assert not any(tmp_path.iterdir())
    # An output that is called probabilities, of no known function; weights that nothing uses.
    model = keras.Sequential([image, core, dense(2)])
    content = onnx.load(export.to_onnx(model, tmp_path / "m.onnx"))
    content.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3, "float16"), "unused"))
    onnx.save(content, tmp_path / "m.onnx")
    assert verify(model, tmp_path / "m.onnx", images).kind == "onnx"
    content.graph.node[-1].output[0] = content.graph.output[0].name = "probabilities"
    onnx.save(content, tmp_path / "m.onnx")
    with pytest.raises(ExportError, match="Received: one that gives 'probabilities'"):
        verify(model, tmp_path / "m.onnx", images)


def test_an_absent_package(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(RuntimeMissing, match=r"keras-vit-16x16\[onnx\]"):
        export.to_onnx(tiny, tmp_path / "n.onnx")
    assert not (tmp_path / "n.onnx").exists()


def test_damaged_files_and_graphs_that_do_not_run(tiny, plain, images, tmp_path, capfd):
    file, helper = tmp_path / "m.onnx", onnx.helper

    def refused():
        with pytest.raises(ExportError, match=r"m\.onnx cannot be \w+ by ONNX"):
            verify(tiny, file, images)

    node = helper.make_node("ReduceMean", ["image"], ["logits"], axes=[1], keepdims=0)
    logits = helper.make_tensor_value_info("logits", 1, None)
    for shape in (("n", 3), (1, 32, 32, 3)):  # no image, and not the eight that it is given
        image = helper.make_tensor_value_info("image", 1, shape)
        opset = [helper.make_opsetid("", 17)]
        graph = helper.make_graph([node], "g", [image], [logits])
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), file)
        refused()
    for content in (b"no model", plain.read_bytes().replace(b"Softmax", b"Flatten")):
        file.write_bytes(content)
        refused()
    assert "onnxruntime" not in capfd.readouterr().err
