import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import keras_vit
from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.hub import archives
from keras_vit.export.tflite import flatbuffer
from keras_vit.export.verification.report import Thresholds
from keras_vit.export.verification.subprocesses import measure
from tests.export.conftest import answer, verify


@pytest.fixture(scope="module")
def model(make_vit):
    return make_vit(num_layers=1)


@pytest.fixture(scope="module")
def module(model, tmp_path_factory):
    return export.to_hub(model, tmp_path_factory.mktemp("module") / "hub")


@pytest.fixture(scope="module")
def tflite(model, tmp_path_factory):
    return export.to_tflite(model, tmp_path_factory.mktemp("tflite") / "m.tflite")


def other(model):
    """The same architecture with other weights."""
    copy = type(model).from_config(model.get_config())
    for source, target in zip(model.weights, copy.weights, strict=True):
        target.assign(source.numpy()[..., ::-1])
    return copy


def test_a_good_artifact_has_no_errors_to_speak_of(model, module, tflite, images, tmp_path):
    npz = tmp_path / "m.npz"
    keras_vit.save_checkpoint(model, npz)
    packed = archives.pack(module, tmp_path / "m.tar.gz")
    labels = answer(model, images).argmax(-1)
    labels[0] = (labels[0] + 1) % 5
    kinds = [(module, "hub", 1e-5), (tflite, "none", 1e-5), (npz, "npz", 0), (packed, "hub", 1e-5)]
    for path, kind, limit in kinds:
        report = verify(model, path, images, labels)
        assert (report.kind, report.output, report.images) == (kind, "logits", 8)
        assert report.max_error <= limit
        assert report.cosine == pytest.approx(1, abs=1e-6)
        assert report.agreement == 1
        assert report.model_accuracy == report.artifact_accuracy == 7 / 8
        assert report.ok and report.failures == ()
    assert verify(model, tflite, images).model_accuracy is None


def test_the_zeros_of_a_new_head_agree_and_show_nothing(images, tmp_path, caplog):
    model = keras_vit.VisionTransformer(
        image_size=32, patch_size=16, hidden_size=8, mlp_dim=8, num_heads=1, num_layers=1,
        num_classes=5,
    )  # fmt: skip
    file = export.to_tflite(model, tmp_path / "m.tflite")
    for some in (images, images[:1]):
        caplog.clear()
        report = verify(model, file, some)
        assert report.ok and report.cosine == 1
        assert "nothing is shown of the other weights" in caplog.text


def test_texts_inside_are_compared(make_vit, images, tmp_path, caplog):
    model = make_vit(num_layers=1)
    names = ["ant", "bee", "cow", "dog", "elk"]
    file = tmp_path / "m.tflite"
    for module, texts in ((export.to_hub, None), (export.to_tflite, names[::-1])):
        shutil.rmtree(file, ignore_errors=True)
        model.class_names, model.preprocessing = names[::-1], "decode|resize(32)|value_range(-1,1)"
        module(model, file, labels=texts)
        assert verify(model, file, images[:1]).ok
        assert not caplog.text
        model.class_names, model.preprocessing = names, "decode|resize([32,32])|value_range(-1,1)"
        order, photos = verify(model, file, images[:1]).failures
        assert order == "its labels.txt has the model's classes in another order"
        assert photos == (
            "it prepares photos by 'decode|resize(32)|value_range(0,1)', the model by "
            "'decode|resize([32,32])|value_range(0,1)'"
        )
        model.class_names = ["Ameise", *names[1:]]
        model.preprocessing = "decode|resize(32)|value_range(-1,1)"
        assert verify(model, file, images[:1]).ok
        model.activation = "sigmoid"
        (activation,) = verify(model, file, images[:1]).failures
        assert activation == "it makes probabilities by softmax, the model by sigmoid"
        model.activation = None


def test_a_single_logit_is_of_the_class_or_not(make_vit, images, tmp_path):
    model = make_vit(num_layers=1, num_classes=1)
    logits = answer(model, images)[:, 0]
    bias = model.get_layer("head").bias
    bias.assign(bias - float(np.median(logits)))
    labels = (answer(model, images)[:, 0] > 0).astype(int)
    assert 0 < labels.sum() < len(labels)
    for probabilities in (False, True):
        file = export.to_tflite(model, tmp_path / "m.tflite", probabilities=probabilities)
        report = verify(model, file, images, labels)
        assert (report.ok, report.model_accuracy, report.artifact_accuracy) == (True, 1, 1)


def test_figures_are_those_of_the_outputs(model, tflite, images):
    wrong = other(model)
    report = verify(wrong, tflite, images, np.zeros(8, int))
    truth, given = (answer(each, images).astype("float64") for each in (wrong, model))
    assert report.max_error == pytest.approx(np.abs(truth - given).max(), abs=1e-4)
    assert report.mean_error == pytest.approx(np.abs(truth - given).mean(), abs=1e-4)
    error = np.sqrt(((truth - given) ** 2).mean()) / truth.std()
    assert report.relative_error == pytest.approx(error, rel=1e-3)
    cosine = (truth * given).sum(1) / np.linalg.norm(truth, axis=1) / np.linalg.norm(given, axis=1)
    assert report.cosine == pytest.approx(cosine.mean(), abs=1e-4)
    assert report.agreement == (truth.argmax(1) == given.argmax(1)).mean()
    assert report.model_accuracy == (truth.argmax(1) == 0).mean()
    assert report.artifact_accuracy == (given.argmax(1) == 0).mean()
    assert not report.ok and report.failures[0].startswith("largest error")


def test_every_threshold_can_fail(model, tflite, images):
    wrong = other(model)
    labels = answer(wrong, images).argmax(-1)
    assert (labels != answer(model, images).argmax(-1)).any()
    lenient = Thresholds(max_error=1e9, cosine=-1, agreement=0, accuracy_drop=1)
    assert verify(wrong, tflite, images, labels, thresholds=lenient).ok
    for name, value in (
        ("max_error", 1e-4),
        ("cosine", 0.9999),
        ("agreement", 1.0),
        ("accuracy_drop", 0.0),
    ):
        limits = dataclasses.replace(lenient, **{name: value})
        (failure,) = verify(wrong, tflite, images, labels, thresholds=limits).failures
        assert name.split("_")[-1] in failure


def test_costs_are_measured_apart(model, tflite, images):
    report = export.verify(model, tflite, images)
    assert set(report.latency_ms) == {1, 2}
    assert min(report.latency_ms.values()) > 0
    assert report.load_seconds > 0 and report.first_call_seconds > 0
    # The interpreter alone, without TensorFlow: this process has several hundred MiB.
    assert 10 * 2**20 < report.peak_memory_bytes < 300 * 2**20
    assert (report.partitions, report.operations_outside_delegate) == (1, {})
    assert report.flex_operations == []
    assert report.size_bytes == tflite.stat().st_size
    values = json.loads(json.dumps(report.to_dict()))
    assert values["ok"] is True and values["latency_ms"]["1"] == report.latency_ms[1]
    assert "top-1 agreement" in str(report)


@pytest.mark.long
def test_costs_of_a_module(model, module, images, monkeypatch):
    monkeypatch.setattr("keras_vit.export.verification.verify.THREADS", (2,))
    report = export.verify(model, module, images)
    assert list(report.latency_ms) == [2] and report.latency_ms[2] > 0
    assert report.load_seconds > 0
    assert report.partitions is None
    assert report.size_bytes == sum(p.stat().st_size for p in module.rglob("*") if p.is_file())


def test_operations_outside_the_delegate_are_counted(model, images, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.export.verification.verify.THREADS", (1,))
    file = tmp_path / "m.tflite"
    export.to_tflite(model, file, quantization="int8-full", calibration=images)
    report = export.verify(model, file, images)
    assert report.partitions > 1
    assert report.operations_outside_delegate["RSQRT"] == 3
    assert report.operations_outside_delegate["GELU"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images: images * 255, r"look like \[0, 255\]"),
        (lambda images: images * 2 - 1, r"look like \[-1, 1\]"),
        # A little outside is outside, and so is what is no number.
        (lambda images: images - 0.01, r"in \[0, 1\]"),
        (lambda images: images + 0.01, r"in \[0, 1\]"),
        (lambda images: images * np.nan, r"in \[0, 1\]"),
        (lambda images: images[:, ::2], r"\(n, 32, 32, 3\)"),
    ],
)
def test_images_in_another_range_are_noticed(model, tflite, images, change, message):
    with pytest.raises(ExportError, match=message):
        verify(model, tflite, change(images))


@pytest.mark.parametrize(("scale", "offset", "name"), [(255, 0, "[0, 255]"), (2, -1, "[-1, 1]")])
def test_an_artifact_for_another_range_is_noticed(model, images, tmp_path, scale, offset, name):
    root = tf.train.Checkpoint(variables=[v.value for v in model.variables])
    spec = tf.TensorSpec((None, 32, 32, 3), tf.float32, name="images")

    @tf.function(input_signature=[spec])
    def call(images):
        return model(2 * (images - offset) / scale - 1, training=False)

    root.__call__ = call
    answer = tf.function(lambda images: {"logits": call(images)}, input_signature=[spec])
    tf.saved_model.save(root, str(tmp_path / "m"), signatures=answer)
    report = verify(model, tmp_path / "m", images)
    assert not report.ok
    assert report.failures[-1] == f"the artifact takes pixels in {name}, not in [0, 1]"


def test_outputs_that_are_not_numbers_fail(make_vit, images, tmp_path, monkeypatch):
    # As from an exporter that does not check the weights.
    monkeypatch.setattr("keras_vit.export.supported_models.require_finite", lambda model: None)
    model = make_vit(num_layers=1)
    broken = make_vit(num_layers=1)
    broken.get_layer("head").bias.assign([float("nan")] * 5)
    report = verify(model, export.to_tflite(broken, tmp_path / "m.tflite"), images)
    assert not report.ok and np.isnan(report.max_error)


def test_an_artifact_of_another_model_is_refused(make_vit, module, tflite, images):
    model = make_vit(num_layers=1, num_classes=3)
    for artifact in (module, tflite):
        with pytest.raises(ExportError, match="another model"):
            verify(model, artifact, images)


def test_a_model_of_another_size_is_told_in_pixels(make_vit, module, tflite):
    larger = make_vit(num_layers=1, image_size=(64, 32))
    images = np.zeros((2, 64, 32, 3), "float32")
    for path in (module, tflite):
        with pytest.raises(ExportError, match=r"of 64 x 32 pixels.*for 32 x 32"):
            verify(larger, path, images)


def test_a_damaged_shape_takes_no_memory(model, tflite, images, tmp_path, monkeypatch):
    tree = flatbuffer.unpack(tflite.read_bytes())
    graph = tree.subgraphs[0]
    tensor = graph.tensors[graph.operators[len(graph.operators) // 2].outputs[0]]
    tensor.shape = np.array([2**24, *tensor.shape[1:]], np.int32)
    (tmp_path / "m.tflite").write_bytes(flatbuffer.pack(tree))

    def allocate(interpreter):
        raise AssertionError("memory was taken")

    monkeypatch.setattr(Interpreter, "allocate_tensors", allocate)
    with pytest.raises(ExportError, match=r"claims \d+ bytes, the next largest \d+, .*damaged"):
        verify(model, tmp_path / "m.tflite", images)


def test_missing_damaged_and_foreign_artifacts(model, tflite, images, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing at"):
        verify(model, tmp_path / "none.tflite", images)
    (tmp_path / "damaged").mkdir()
    signature = tf.function(lambda x: {"logits": x}, input_signature=[tf.TensorSpec((1,))])
    tf.saved_model.save(tf.train.Checkpoint(), str(tmp_path / "plain"), signatures=signature)
    for name, content, message in (
        ("text.tflite", b"this is not a model, but long enough for a header", "TFL3"),
        ("half.tflite", tflite.read_bytes()[: tflite.stat().st_size // 2], r"half\.tflite"),
        ("m.pb", b"no model", "Expected the directory of a SavedModel"),
        ("damaged/saved_model.pb", b"\xff" * 100, "cannot be loaded as a SavedModel"),
        ("plain/notes.txt", b"with signatures only", "can be called"),
    ):
        (tmp_path / name).write_bytes(content)
        artifact = tmp_path / name if "/" not in name else (tmp_path / name).parent
        with pytest.raises(ExportError, match=message):
            verify(model, artifact, images)
    with pytest.raises(ExportError, match=r"half\.tflite does not run: .*Export the model"):
        measure(tmp_path / "half.tflite", 1, (16, 16))
