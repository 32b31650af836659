"""ONNX files, in ONNX Runtime."""

import json
import sys

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import export
from keras_vit.export.errors import ExportError, RuntimeMissing

# Architectures whose graphs differ.
FAMILIES = {
    "token": {},
    "gap, erf": {"classifier": "gap", "gelu": "erf"},
    "map": {"classifier": "map"},
    "token_gap, registers": {"classifier": "token_gap", "register_tokens": 2},
    "relative": {"position_embedding": "relative"},
    "positions in every block": {"position_placement": "every"},
    "hybrid": {"resnet": {"num_layers": (1,)}, "patch_size": 2},
    "axial": {"attention": "axial", "classifier": "gap"},
    "no head": {"num_classes": None},
}


@pytest.fixture(autouse=True)
def with_onnx():
    for name in ("onnx", "onnxruntime", "tf2onnx"):
        pytest.importorskip(name, reason="the extra onnx is not installed: make test-runtimes")


def verified(model, file, images):
    return export.verify(model, export.to_onnx(model, file), images, costs=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_in_onnx_runtime(make_vit, images, tmp_path, family):
    report = verified(make_vit(**FAMILIES[family]), tmp_path / "m.onnx", images)
    assert report.ok and report.runtime == "onnx" and report.max_error < 2e-5
    assert report.output == ("representation" if family == "no head" else "logits")


def test_residual_and_axial_networks(images, randomize, tmp_path):
    size = {"image_size": 32, "num_classes": 5}
    for model in (
        keras_vit.ResNetV2(num_layers=(1, 1), **size),
        keras_vit.ResNetV2(num_layers=(1, 1), pool_padding="zero", **size),
        keras_vit.AxialResNet(num_layers=(1, 1), **size),
    ):
        assert verified(randomize(model), tmp_path / "m.onnx", images).ok


def test_names_labels_and_any_batch(make_vit, images, tmp_path):
    import onnx
    import onnxruntime

    model = make_vit(dtype="mixed_bfloat16")
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


def test_onnx_runtime_quantizes_them(make_vit, images, tmp_path):
    from onnxruntime import InferenceSession, quantization

    file, small = export.to_onnx(make_vit(), tmp_path / "m.onnx"), tmp_path / "int8.onnx"
    quantization.quantize_dynamic(file, small, weight_type=quantization.QuantType.QInt8)
    expected, found = (
        InferenceSession(each).run(None, {"image": images})[0] for each in (file, small)
    )
    assert 0 < np.std(found - expected) < 0.1 * np.std(expected)


def test_a_sequential_around_a_model(make_vit, images, tmp_path):
    inside = make_vit(num_classes=None)
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Rescaling(1 / 127.5, offset=-1),
            inside,
            keras.layers.Dense(3),
        ]
    )
    assert verified(model, tmp_path / "m.onnx", images).ok


def test_damaged_files_and_absent_packages(make_vit, images, tmp_path, monkeypatch):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(ExportError, match="cannot be loaded by ONNX Runtime"):
        export.verify(make_vit(), tmp_path / "m.onnx", images)
    model = make_vit()
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(RuntimeMissing, match=r"keras-vit-16x16\[onnx\]"):
        export.to_onnx(model, tmp_path / "n.onnx")
    assert not (tmp_path / "n.onnx").exists()


def test_another_answer_is_noticed(make_vit, images, tmp_path):
    file = export.to_onnx(make_vit(), tmp_path / "m.onnx")
    other = make_vit()
    other.get_layer("head").kernel.assign(np.roll(other.get_layer("head").kernel, 1, axis=1))
    assert not export.verify(other, file, images, costs=False).ok
