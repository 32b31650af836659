import dataclasses
import json
import re
import shutil
import types
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import keras_vit
from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.hub import tar_gz
from keras_vit.export.tflite import to_tflite
from keras_vit.export.tflite.flatbuffer import pack, unpack
from keras_vit.export.verification import runtimes
from keras_vit.export.verification.report import Thresholds
from keras_vit.export.verification.subprocesses import measure
from tests.export.conftest import answer, verify
from tests.tiny_vit import tiny_vit

NAMES = ["ant", "bee", "cow", "dog", "elk"]
OTHERS = {"image_size": [9, 9], "image_range": [-1, 1], "preprocessing": "decode|resize(32)"}
ABSENT = ("activation", "preprocessing")
NONE = [f"its {name} is None" for name in ABSENT]
RESIZED = "is 'decode|resize(32)', the model's 'decode|resize([32,32])|value_range(0,1)'"


@pytest.fixture(scope="module")
def wrong(tiny):
    copy = type(tiny).from_config(tiny.get_config())
    for source, target in zip(tiny.weights, copy.weights, strict=True):
        target.assign(source.numpy()[..., ::-1])
    return copy


def test_a_good_artifact_has_no_errors(tiny, tiny_module, tiny_tflite, images, tmp_path):
    keras_vit.save_checkpoint(tiny, tmp_path / "m.npz")
    labels = answer(tiny, images).argmax(-1)
    labels[0] = (labels[0] + 1) % 5
    for path, kind, limit in (
        (tiny_module, "hub", 1e-5),
        (tar_gz.pack(tiny_module, tmp_path / "m.tar.gz"), "hub", 1e-5),
        (tiny_tflite, "none", 1e-5),
        (tmp_path / "m.npz", "npz", 0),
    ):
        report = verify(tiny, path, images, labels)
        assert (report.kind, report.output, report.images) == (kind, "logits", 8)
        assert report.max_error <= limit and report.cosine == pytest.approx(1, abs=1e-6)
        assert report.model_accuracy == report.artifact_accuracy == 7 / 8
        assert report.agreement == 1 and report.ok and report.failures == ()
        files = [each for each in (path, *path.rglob("*")) if each.is_file()]
        assert report.size_bytes == sum(each.stat().st_size for each in files)
    assert verify(tiny, tiny_tflite, images).model_accuracy is None


def test_the_zeros_of_a_new_head_agree_and_show_nothing(images, tmp_path, caplog):
    model = tiny_vit(image_size=32, num_layers=1)
    file = export.to_tflite(model, tmp_path / "m.tflite")
    for some in (images, images[:1]):
        caplog.clear()
        report = verify(model, file, some)
        assert report.ok and report.cosine == 1
        assert "nothing is shown of the other weights" in caplog.text


@pytest.fixture(scope="module")
def named(make_vit, tmp_path_factory):
    model = make_vit(num_layers=1)
    model.class_names = NAMES
    return model, export.to_hub(model, tmp_path_factory.mktemp("named") / "module")


# Texts alone: what the module computes is compared below.
@pytest.mark.rows(
    (OTHERS, NAMES[:2], ["size is [9, 9]", "range is [-1, 1]", "2 labels, the model 5", RESIZED]),
    (dict.fromkeys(ABSENT), ["bee", "ant", "Kuh", *NAMES[3:]], ["in another order", *NONE]),
    ({"activation": "sigmoid"}, None, ["no labels.txt", "'sigmoid', the model's 'softmax'"]),
    (None, ["a", "a", *"xyz"], ["it has no interface.json"]),
    ({}, ["Bee", "ANT", *NAMES[2:]], ["in another order"]),
    ({}, ["Ameise", *NAMES[1:]], []),
    ({"activation": "none"}, NAMES, ["activation is 'none'"]),
    ({"activation_inside": "softmax"}, ["ant", "bee", "ant", *NAMES[3:]], ["inside is", "order"]),
)
def test_changed_texts_are_noticed(changes, labels, messages, named, images, tmp_path, monkeypatch):
    monkeypatch.setattr(runtimes, "_module_differences", lambda *_: {})
    model, module = named
    module = shutil.copytree(module, tmp_path / "module")
    interface, names = (module / "assets" / name for name in ("interface.json", "labels.txt"))
    if changes is None:
        interface.unlink()
    else:
        kept = json.loads(interface.read_text()) | changes
        interface.write_text(json.dumps({key: value for key, value in kept.items() if value}))
    names.unlink() if labels is None else names.write_text("\n".join(labels))
    failures = verify(model, module, images[:1]).failures
    assert len(failures) == len(messages), failures
    assert all(any(message in failure for failure in failures) for message in messages), failures


@pytest.mark.long
def test_probabilities_by_another_activation_are_noticed(named, images, tmp_path):
    model, _ = named
    module = export.to_hub(model, tmp_path / "module", activation="sigmoid")
    interface = module / "assets" / "interface.json"
    interface.write_text(interface.read_text().replace("sigmoid", "softmax"))
    options = {"probabilities": True, "activation": "sigmoid"}
    for artifact in (module, export.to_tflite(model, tmp_path / "m.tflite", **options)):
        (failure,) = verify(model, artifact, images[:2]).failures
        assert "makes probabilities by sigmoid, the model by softmax" in failure
    file = export.to_tflite(model, tmp_path / "m.tflite", labels=NAMES[::-1], activation="sigmoid")
    order, activation = verify(model, file, images[:1]).failures
    assert "classes in another order" in order and "its activation is 'sigmoid'" in activation
    around = keras.Sequential([keras.Input((32, 32, 3)), model, keras.layers.Dense(5, "softmax")])
    module = export.to_hub(around, tmp_path / "around", activation="sigmoid")
    one, other = verify(around, module, images[:2]).failures
    assert "is 'sigmoid', the model's 'softmax'" in one and "by sigmoid, the model by" in other


@pytest.mark.long
def test_every_way_to_call_a_module_is_compared(named, images, tmp_path):
    model, module = named
    other = type(model).from_config(model.get_config())
    other.set_weights(model.get_weights())
    other.class_names = NAMES
    other.preprocessing = "decode|resize_small(64)|central_crop(32)|value_range(-1,1)"
    cropping = export.to_hub(other, tmp_path / "module")
    shutil.copy(module / "assets" / "interface.json", cropping / "assets")
    with pytest.MonkeyPatch.context() as patch:
        resize = tf.image.resize
        patch.setattr(tf.image, "resize", lambda image, to, *_, **__: resize(image, to, "nearest"))
        nearest = export.to_hub(model, tmp_path / "nearest")
    for wrong in (cropping, nearest):
        (failure,) = verify(model, wrong, images).failures
        assert failure.startswith("its serving_bytes differs by ")
    loaded = tf.saved_model.load(str(module))
    assert not any(error > 1e-4 for error in differences(loaded, model, images).values())
    signature = loaded.signatures["serving_default"]

    class Swapping(types.SimpleNamespace):
        def __call__(self, images, training=False):
            return loaded(images) * (-1 if training or len(images) == 1 else 1)

    swapping = Swapping(endpoints=loaded.endpoints, variables=loaded.variables[1:])
    swapping.signatures = {}
    swapping.signatures["serving_default"] = lambda images: {"logits": -signature(images)["logits"]}
    swapping.signatures["class_maps"] = lambda images, classes: {
        "maps": tf.ones((len(images), 4, 4))
    }
    swapping.feature_vector = lambda images: 0 * loaded.feature_vector(images)
    swapping.serve, swapping.serve_train = lambda images: loaded(images) + 1, loaded.serve_train
    found = differences(swapping, model, images)
    wrong = {"answer for one image", "feature_vector", "number of weights"}
    wrong |= {"class_maps", "serve", "serving_default", "training=True"}
    assert {way for way, error in found.items() if error > 0.1} == wrong


def differences(module, model, images):
    return runtimes._module_differences(module, model, "logits", None, images)


@pytest.mark.rows({"probabilities": True}, long=[{}, {"quantization": "float16"}])
def test_every_signature_of_a_file_is_compared(options, tiny, wrong, images, tmp_path, monkeypatch):
    added = {"batch_sizes": [2], "image_sizes": [48], "feature_vector": True, **options}
    file = export.to_tflite(tiny, tmp_path / "m.tflite", attention_rollout=True, **added)
    assert verify(tiny, file, images).ok
    right = to_tflite._of_size
    monkeypatch.setattr(to_tflite, "_of_size", lambda *_: right(wrong, 48, 48))
    (failure,) = verify(tiny, file, images).failures
    assert failure.startswith("its signature size_48x48 differs by ")
    file.write_bytes(file.read_bytes().replace(b"batch_2", b"batch_3"))
    with pytest.raises(ExportError, match=r"The signature batch_3 of .* cannot be run"):
        verify(tiny, file, images)


def test_what_float16_cannot_hold_is_refused(make_vit, tmp_path):
    model = make_vit(num_layers=1)
    model.get_layer("head").kernel.assign(model.get_layer("head").kernel + 70_000)
    with pytest.raises(ExportError, match=r"at most 65504, the largest number of float16"):
        export.to_tflite(model, tmp_path / "m.tflite", quantization="float16")
    assert not any(tmp_path.iterdir())


@pytest.mark.rows(
    # No endpoint shows a sign of a normalization's sum of squares, each of which is small.
    ("output_dense", 75.0, 8, r"_norm\S*/Mean_1 reaches 1\.\d+e\+05, float16 ends at 65504"),
    long=[
        # GELU's cube and square overflow where they do no harm.
        ("hidden_dense", -9e3, 1, None),
        ("output_dense", 4e4, 1, r"_norm\S*/Mean_1 reaches 6\.\d+e\+09"),
    ],
)
def test_overflow_fails(dense, bias, channels, message, make_vit, images, tmp_path, monkeypatch):
    model = make_vit(num_layers=3)
    for block in (model.get_layer("encoder_block_00"), model.get_layer("encoder_block_01")):
        layer = getattr(block.mlp, dense)
        layer.bias.assign(layer.bias + bias * (np.arange(layer.units) < channels))
    files = {name: tmp_path / f"{name}.tflite" for name in ("none", "float16")}
    export.to_tflite(model, tmp_path, quantization=files)
    assert verify(model, files["none"], images).ok
    failures = verify(model, files["float16"], images).failures
    # Stands in for a GPU that may compute in float32.
    monkeypatch.setitem(runtimes._OPEN, "gpu", runtimes._open_interpreter)
    assert verify(model, files["none"], images, runtime="gpu").failures == failures
    assert len(failures) == (message is not None)
    assert message is None or re.search(message, failures[0]), failures


def test_another_normalization_in_the_metadata_fails(tiny, tiny_tflite, images, tmp_path):
    content, file = tiny_tflite.read_bytes(), tmp_path / "m.tflite"
    deviation, other = np.float32([[255], [127.5]])
    assert content.count(deviation.tobytes()) == 1
    for old, new in ((deviation.tobytes(), other.tobytes()), (b"_METADATA", b"_METADATE")):
        file.write_bytes(content.replace(old, new))
        (failure,) = verify(tiny, file, images).failures
        assert "its metadata describe other images" in failure
    tree = unpack(content)
    tree.metadata *= 2
    file.write_bytes(pack(tree))
    assert failure in verify(tiny, file, images).failures
    tree.subgraphs *= 2
    tree.signatureDefs[0].subgraphIndex = 1
    file.write_bytes(pack(tree))
    with pytest.raises(ExportError, match="Expected serving_default to be the first graph"):
        verify(tiny, file, images)


@pytest.mark.parametrize("labeled", [True, False])
def test_a_report_says_which_classes_it_has_not_seen(named, images, labeled, tmp_path):
    model, file = named[0], export.to_tflite(named[0], tmp_path / "m.tflite")
    found = answer(model, images).argmax(-1)
    kept = images[(found == found[0]) | (found == found[-1])]
    labels = [found[0] if image % 2 else 3 for image in range(len(kept))] if labeled else None
    report = verify(model, file, kept, labels)
    seen = {int(found[0]), 3} if labeled else {int(found[0]), int(found[-1])}
    unseen = [name for number, name in enumerate(NAMES) if number not in seen]
    assert (report.classes, report.unseen) == ((len(seen), 5), tuple(unseen))
    rows = dict(report.rows())
    assert rows["classes of the images"] == f"{len(seen)} of 5" and report.ok
    assert rows["nothing is known of"] == ", ".join(unseen)
    report = verify(model, file, images[:5], np.eye(5))
    assert report.unseen == () and "nothing is known of" not in dict(report.rows())
    many = dataclasses.replace(report, classes=(1, 15), unseen=tuple("abcdefghijklmn"))
    assert dict(many.rows())["nothing is known of"] == "a, b, c, d, e, f, g, h, i, j, …"


def test_images_with_several_labels_or_none_and_what_is_no_label(tiny, tiny_tflite, images):
    best = answer(tiny, images).argmax(-1)
    rows = np.zeros((8, 5), np.float32)
    rows[[0, 0, 1], [best[0], (best[0] + 1) % 5, (best[1] + 1) % 5]] = 1
    report = verify(tiny, tiny_tflite, images, rows)
    assert report.model_accuracy == report.artifact_accuracy == 1 / 2
    assert verify(tiny, tiny_tflite, images, 0 * rows).model_accuracy is None
    for labels in ([-1] * 8, [5] * 8, [0.5] * 8, ["ant"] * 8, [0] * 7, rows[:, :4]):
        with pytest.raises(ExportError, match=r"Expected (labels|an integer for each)"):
            verify(tiny, tiny_tflite, images, labels)


def test_a_single_logit_has_labels_and_tokens_have_none(make_vit, images, tmp_path):
    tokens = make_vit(num_layers=1, classifier="unpooled")
    report = verify(tokens, export.to_tflite(tokens, tmp_path / "t.tflite"), images, [0] * 8)
    assert report.ok and report.model_accuracy is None
    model = make_vit(num_layers=1, num_classes=1)
    bias = model.get_layer("head").bias
    bias.assign(bias - float(np.median(answer(model, images))))
    labels = (answer(model, images)[:, 0] > 0).astype(int)
    assert 0 < labels.sum() < len(labels)
    for probabilities in (False, True):
        file = export.to_tflite(model, tmp_path / "m.tflite", probabilities=probabilities)
        report = verify(model, file, images, labels)
        assert (report.ok, report.model_accuracy, report.artifact_accuracy) == (True, 1, 1)


def test_figures_are_exact_and_every_threshold_can_fail(tiny, wrong, tiny_tflite, images):
    report = verify(wrong, tiny_tflite, images, np.zeros(8, int))
    truth, given = (answer(each, images).astype("float64") for each in (wrong, tiny))
    assert report.max_error == pytest.approx(np.abs(truth - given).max(), abs=1e-4)
    assert report.mean_error == pytest.approx(np.abs(truth - given).mean(), abs=1e-4)
    relative = np.sqrt(((truth - given) ** 2).mean()) / truth.std()
    assert report.relative_error == pytest.approx(relative, rel=1e-3)
    cosine = (truth * given).sum(1) / np.linalg.norm(truth, axis=1) / np.linalg.norm(given, axis=1)
    assert report.cosine == pytest.approx(cosine.mean(), abs=1e-4)
    assert report.agreement == (truth.argmax(1) == given.argmax(1)).mean()
    assert report.model_accuracy == (truth.argmax(1) == 0).mean()
    assert report.artifact_accuracy == (given.argmax(1) == 0).mean()
    assert not report.ok and report.failures[0].startswith("largest error")
    labels = answer(wrong, images).argmax(-1)
    assert (labels != answer(tiny, images).argmax(-1)).any()
    lenient = Thresholds(max_error=1e9, cosine=-1, agreement=0, accuracy_drop=1)
    report = verify(wrong, tiny_tflite, images, labels, thresholds=lenient)
    assert report.ok
    strict = {"max_error": 1e-4, "cosine": 0.9999, "agreement": 1.0, "accuracy_drop": 0.0}
    for name, value in strict.items():
        (failure,) = dataclasses.replace(lenient, **{name: value}).missed(report)
        assert name.split("_")[-1] in failure
    in_float16 = dataclasses.replace(report, float16_error=1.0 * report.scale)
    assert "in float16" in lenient.missed(in_float16)[0]


def mean_iou(logits, labels):
    metric = keras.metrics.MeanIoU(5, ignore_class=-1)
    metric.update_state(labels, logits.argmax(-1))
    return pytest.approx(float(metric.result()), rel=1e-6)


@pytest.fixture(scope="module")
def maps(segmenter, scenes):
    """Classes of pixels, of which a tenth differs from the model's, and a tenth has none."""
    found, draw = answer(segmenter, scenes).argmax(-1), np.random.default_rng(4)
    found = np.where(draw.random(found.shape) < 0.1, draw.integers(0, 5, found.shape), found)
    return np.where(draw.random(found.shape) < 0.1, -1, found)


def test_masks_are_compared_by_their_pixels(segmenter, segmenter_tflite, scenes, maps):
    right, wrong = segmenter, type(segmenter).from_config(segmenter.get_config())
    wrong.set_weights([each.numpy()[..., ::-1] for each in segmenter.weights])
    path = segmenter_tflite
    report = verify(right, path, scenes, maps)
    assert report.ok and (report.output, report.classifies) == ("logits", "pixel"), report
    assert report.agreement > 0.999 and report.max_error < 1e-4 and report.classes is None
    found = answer(right, scenes)
    assert report.model_accuracy == mean_iou(found, maps)
    assert report.artifact_accuracy == pytest.approx(report.model_accuracy, abs=1e-3)
    assert "mean IoU of the artifact" in str(report) and "interval" not in str(report)
    without = np.full_like(maps, -1)
    assert verify(right, path, scenes, without).model_accuracy is None

    report = verify(wrong, path, scenes, maps)
    truth = answer(wrong, scenes)
    equal = (truth.argmax(-1) == found.argmax(-1)).mean()
    assert equal < 0.9 and report.agreement == pytest.approx(equal, abs=1e-3)
    assert report.model_accuracy == mean_iou(truth, maps)
    assert report.max_error == pytest.approx(np.abs(truth - found).max(), abs=1e-4)
    error, _, agreement, *_ = report.failures
    assert "largest error" in error and agreement.startswith("agreement 0.")


def test_pixels_between_two_classes_may_differ_and_no_more(segmenter, segmenter_tflite, scenes):
    report = verify(segmenter, segmenter_tflite, scenes)
    limits = Thresholds(1e-4, 0.999, agreement=1.0, accuracy_drop=0.0)
    for agreement, drop, missed in ((0.9991, 0.0009, 0), (0.9989, 0, 1), (1, 0.0011, 1)):
        accuracies = {"model_accuracy": 0.9, "artifact_accuracy": 0.9 - drop}
        changed = dataclasses.replace(report, agreement=agreement, **accuracies)
        assert len(limits.missed(changed)) == missed
        assert len(limits.missed(dataclasses.replace(changed, classifies="image"))) >= 1


def test_a_mask_file_with_a_changed_weight_fails(segmenter, segmenter_tflite, scenes, tmp_path):
    tree = unpack(segmenter_tflite.read_bytes())
    sizes = [0 if each.data is None else len(each.data) for each in tree.buffers]
    largest = tree.buffers[int(np.argmax(sizes))]
    largest.data = np.frombuffer(-2 * np.frombuffer(largest.data, "float32"), np.uint8)
    (tmp_path / "m.tflite").write_bytes(pack(tree))
    with segmenter_tflite.open("rb") as whole, (tmp_path / "m.tflite").open("ab") as broken:
        whole.seek(0)
        texts = whole.read()
        broken.write(texts[texts.index(b"PK\x03\x04") :])
    failures = verify(segmenter, tmp_path / "m.tflite", scenes).failures
    assert [each.split()[0] for each in failures][:3] == ["largest", "cosine", "agreement"]


def test_maps_that_do_not_fit_and_outputs_that_fill_the_memory(
    segmenter, segmenter_tflite, scenes, maps, monkeypatch, caplog
):
    for labels in (maps[:, :8], maps + 0.5, np.where(maps == 4, 255, maps)):
        with pytest.raises(ExportError, match=r"below 5 for each pixel, \(4, 32, 48\), negative"):
            verify(segmenter, segmenter_tflite, scenes, labels)
    monkeypatch.setattr("keras_vit.export.verification.verify._MOST_BYTES", 2 * 32 * 48 * 5 * 4)
    report = verify(segmenter, segmenter_tflite, scenes, maps)
    assert report.images == 2 and "2 of 4 images are compared" in caplog.text
    assert report.model_accuracy == mean_iou(answer(segmenter, scenes[:2]), maps[:2])


@pytest.mark.long
def test_costs_of_a_module(tiny, tiny_module):
    costs = measure(tiny_module, 1, (32, 32), rounds=1)
    assert costs["latency_ms"] > 0 and costs["load_seconds"] > 0 and "partitions" not in costs


def test_costs_are_measured_apart(tiny, tiny_tflite, images, tmp_path):
    report = export.verify(tiny, tiny_tflite, images)
    assert set(report.latency_ms) == {1, 2} and min(report.latency_ms.values()) > 0
    assert report.load_seconds > 0 and report.first_call_seconds > 0
    # The interpreter alone, without TensorFlow: this process has several hundred MiB.
    assert 10 * 2**20 < report.peak_memory_bytes < 300 * 2**20
    assert (report.partitions, report.operations_outside_delegate) == (1, {})
    values = json.loads(json.dumps(report.to_dict()))
    assert values["ok"] is True and values["latency_ms"]["1"] == report.latency_ms[1]
    assert "top-1 agreement" in str(report)
    options = {"quantization": "int8-full", "calibration": images}
    costs = measure(export.to_tflite(tiny, tmp_path / "m.tflite", **options), 1, (32, 32))
    outside = costs["operations_outside_delegate"]
    assert costs["partitions"] > 1 and (outside["RSQRT"], outside["GELU"]) == (3, 1)


def test_other_images_and_models_are_refused(tiny, make_vit, tiny_module, tiny_tflite, images):
    for changed, message in (
        (images * 255, r"look like \[0, 255\]"),
        (images * 2 - 1, r"look like \[-1, 1\]"),
        # A little outside is outside, and so is what is no number.
        *((each, r"in \[0, 1\]") for each in (images - 0.01, images + 0.01, images * np.nan)),
        (images[:, ::2], r"\(n, 32, 32, 3\)"),
    ):
        with pytest.raises(ExportError, match=message):
            verify(tiny, tiny_tflite, changed)
    fewer = make_vit(num_layers=1, num_classes=3)
    larger = make_vit(num_layers=1, image_size=(64, 32))
    for artifact in (tiny_module, tiny_tflite):
        with pytest.raises(ExportError, match="another model"):
            verify(fewer, artifact, images)
        with pytest.raises(ExportError, match=r"of 64 x 32 pixels.*for 32 x 32"):
            verify(larger, artifact, np.zeros((2, 64, 32, 3), "float32"))


# A square of the last is infinite in float32, without a warning.
@pytest.mark.parametrize("values", [[np.nan] * 5, [np.inf, *[3e38] * 4]], ids=["nan", "inf"])
def test_outputs_of_nan_fail(tiny, make_vit, images, tmp_path, monkeypatch, recwarn, values):
    # As from an exporter that does not check the weights.
    monkeypatch.setattr("keras_vit.export.supported_models.require_finite", lambda model: None)
    broken = make_vit(num_layers=1)
    broken.get_layer("head").bias.assign(values)
    report = verify(tiny, export.to_tflite(broken, tmp_path / "m.tflite"), images)
    assert not report.ok and np.isnan(report.max_error)
    assert not [each for each in recwarn if each.category is RuntimeWarning]


def test_a_damaged_shape_takes_no_memory(tiny, tiny_tflite, images, tmp_path, monkeypatch):
    tree = unpack(tiny_tflite.read_bytes())
    graph = tree.subgraphs[0]
    tensor = graph.tensors[graph.operators[len(graph.operators) // 2].outputs[0]]
    tensor.shape = np.array([2**24, *tensor.shape[1:]], np.int32)
    (tmp_path / "m.tflite").write_bytes(pack(tree))
    monkeypatch.setattr(Interpreter, "allocate_tensors", Mock(side_effect=AssertionError))
    with pytest.raises(ExportError, match=r"claims \d+ bytes, the next largest \d+, .*damaged"):
        verify(tiny, tmp_path / "m.tflite", images)


def test_missing_damaged_and_foreign_artifacts(tiny, tiny_tflite, images, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing at"):
        verify(tiny, tmp_path / "none.tflite", images)
    (tmp_path / "damaged").mkdir()
    signature = tf.function(lambda x: {"logits": x}, input_signature=[tf.TensorSpec((1,))])
    tf.saved_model.save(tf.train.Checkpoint(), str(tmp_path / "plain"), signatures=signature)
    half = tiny_tflite.read_bytes()[: tiny_tflite.stat().st_size // 2]
    for name, content, message in (
        ("text.tflite", b"this is not a model, but long enough for a header", "TFL3"),
        ("half.tflite", half, r"half\.tflite"),
        ("m.pb", b"no model", "Expected the directory of a SavedModel"),
        ("damaged/saved_model.pb", b"\xff" * 100, "cannot be loaded as a TF-Hub module"),
        ("plain/notes.txt", b"with signatures only", "can be called"),
    ):
        (tmp_path / name).write_bytes(content)
        artifact = tmp_path / name if "/" not in name else (tmp_path / name).parent
        with pytest.raises(ExportError, match=message):
            verify(tiny, artifact, images)
