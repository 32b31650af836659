import collections
import zipfile

import keras
import numpy as np
import pytest
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter

import keras_vit
from benchmarks.errors_in_runtimes import with_noise
from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.tflite.flatbuffer import TFLiteFile, schema
from keras_vit.export.verification.report import THRESHOLDS
from keras_vit.training.inference.interface import interface_of, labels_of
from tests.export.conftest import LABELS, answer, run, verify

# Largest error of logits whose standard deviation is about 1.
TOLERANCE = {"none": 1e-5, "float16": 5e-3, "dynamic": 0.1, "int8": 0.2, "int8-full": 0.6}
TOLERANCE |= {"int16x8": 0.1, "int8-int16": 0.2}
SHAPES = (2, 48, 48, 3), (2, 24, 40, 3)  # of other sizes than the model's
SQUARE, WIDE = (np.float32(np.random.default_rng(3).uniform(0, 1, shape)) for shape in SHAPES)


@pytest.fixture(scope="module")
def model(make_vit):
    model = make_vit()
    model.preprocessing = "decode|resize_small(40)|central_crop(32)|value_range(-1, 1)"
    return model


@pytest.fixture(scope="module")
def files(model, images, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tflite")
    files = {quantization: directory / f"{quantization}.tflite" for quantization in TOLERANCE}
    options = {"labels": LABELS, "batch_sizes": (4,), "feature_vector": True}
    options |= {"quantization": TOLERANCE, "calibration": images}
    export.to_tflite(model, directory, **options)
    return files


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    return export.to_tflite(model, tmp_path_factory.mktemp("plain") / "m.tflite")


@pytest.mark.parametrize("quantization", TOLERANCE)
def test_every_signature_agrees_with_keras_and_texts_are_inside(model, files, images, quantization):
    file, tolerance = files[quantization], TOLERANCE[quantization]
    logits = answer(model, images)
    assert 0.2 < logits.std() < 5
    for signature in ("serving_default", "batch_4"):
        result = run(file, images, signature)
        assert np.abs(result - logits).max() < tolerance
        if quantization in ("none", "float16"):
            assert (result.argmax(1) == logits.argmax(1)).all()
    report, limits = verify(model, file, images), THRESHOLDS[quantization]
    assert report.kind == quantization and report.cosine >= limits.cosine
    assert report.max_error <= limits.max_error * report.scale
    result = run(file, images, "feature_vector")
    assert np.abs(result - answer(model, images, "representation")).max() < 2 * tolerance
    if quantization in ("none", "float16", "dynamic", "int8"):
        assert CompiledModel.from_file(str(file)).is_fully_accelerated()
    # The main signature is the first subgraph.
    (image,) = Interpreter(str(file)).get_input_details()
    assert tuple(image["shape"]) == (1, 32, 32, 3)
    tree = TFLiteFile(file).tree
    (entry,) = [each for each in tree.metadata if each.name == b"TFLITE_METADATA"]
    metadata = bytes(tree.buffers[entry.buffer].data)
    assert metadata[4:8] == b"M001" and b"value_range(0,1)" in metadata
    assert labels_of(file) == LABELS
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None and archive.namelist() == ["interface.json", "labels.txt"]


def test_large_tables_are_computed_once(make_vit, images, tmp_path):
    model = make_vit(patch_size=2, position_embedding="learned_2d", register_tokens=2)
    file = export.to_tflite(with_noise(model), tmp_path / "m.tflite", batch_sizes=(130,))
    report = verify(model, file, images)
    assert report.ok and report.max_error < 1e-5 * report.scale


def test_signatures_share_the_weights_which_quantizing_shrinks(model, files, plain):
    alone, weights = plain.stat().st_size, 4 * model.count_params()
    size = {name: file.stat().st_size for name, file in files.items()}
    assert weights < alone
    assert size["none"] < 1.6 * alone  # three graphs around one set of weights
    assert size["none"] - size["float16"] > 0.4 * weights
    assert size["none"] - size["dynamic"] > 0.5 * weights


def test_affine_operations_are_in_the_weights_and_the_last_block_is_of_one_token(plain):
    file = TFLiteFile(plain)
    graph, count = file.operations, collections.Counter(file.operations)
    assert graph[0] == "CONV_2D"  # the rescaling of pixels is in the kernel
    layers, norms = 2, 2 * 2 + 1
    assert count["FULLY_CONNECTED"] == 6 * layers + 1 and count["BATCH_MATMUL"] == 2 * layers
    assert count["GELU"] == count["SOFTMAX"] == layers
    # Two products a normalization. Only the last block's first meets a slice before a dense
    # layer, and keeps its scale.
    assert count["MUL"] == 2 * norms + 1 and count["RSQRT"] == norms
    assert not {"NEG", "SQUARED_DIFFERENCE", "DIV", "POW", "ERF"} & set(count)
    (tree,) = file.tree.subgraphs
    hidden = [tree.tensors[each.outputs[0]].shape for each in tree.operators]
    sizes = [np.prod(shape) for shape, name in zip(hidden, graph, strict=True) if name == "GELU"]
    assert sizes == [17 * 64, 1 * 64]


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_probabilities_in_place_of_logits(model, images, tmp_path, activation):
    options = {"quantization": "int8-full", "calibration": images, "batch_sizes": (4,)}
    options |= {"feature_vector": True, "activation": activation, "probabilities": True}
    file = export.to_tflite(model, tmp_path / "m.tflite", **options)
    expected = getattr(keras.ops, activation)(answer(model, images))
    np.testing.assert_allclose(run(file, images, "batch_4"), expected, atol=0.1)
    signatures = Interpreter(str(file)).get_signature_list()
    outputs = {name: each["outputs"] for name, each in signatures.items()}
    assert outputs.pop("feature_vector") == ["representation"]
    assert outputs == {"serving_default": ["probabilities"], "batch_4": ["probabilities"]}
    assert interface_of(file)["activation"] == "none"
    report = verify(model, file, images, expected.numpy().argmax(-1))
    assert report.output == "probabilities" and report.max_error < 0.1
    assert report.model_accuracy == 1


def test_equal_exports_are_equal_and_plain_ones_have_no_labels(model, plain, tmp_path):
    assert export.to_tflite(model, tmp_path / "m.tflite").read_bytes() == plain.read_bytes()
    assert labels_of(plain) is None
    # The description says how photos are prepared.
    expected = b"decode|resize_small(40)|central_crop(32)|value_range(0,1)"
    assert expected in plain.read_bytes().split(b"interface.json")[0]


@pytest.mark.rows(
    ({"calibration": None}, "calibration=images"),
    ({"calibration": lambda images: images * 255}, r"look like \[0, 255\]"),
    ({"calibration": lambda images: images * 2 - 1}, r"look like \[-1, 1\]"),
    ({"calibration": lambda images: images[:, :16]}, r"\(32, 32, 3\)"),
    ({"calibration": lambda images: []}, "no images"),
    ({"calibration": np.ones_like}, "8 images of one color each"),
    ({"calibration": iter, "batch_sizes": (9,)}, "at least 9"),
    ({"quantization": "int4"}, "int4"),
    *(({name: (0,)}, "positive int") for name in ("batch_sizes", "image_sizes")),
)
def test_arguments_are_checked(arguments, message, model, images, tmp_path):
    arguments = {"quantization": "int8", "calibration": np.asarray, **arguments}
    if arguments["calibration"]:
        arguments["calibration"] = arguments["calibration"](images)
    with pytest.raises(ValueError, match=message):
        export.to_tflite(model, tmp_path / "m.tflite", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_layer_that_the_converter_does_not_know_is_named(model, tmp_path):
    resized = keras.layers.Resizing(32, 32, "bicubic")
    around = keras.Sequential([keras.Input((40, 40, 3)), resized, model])
    with pytest.raises(ExportError, match="a layer that the converter to TFLite does not know"):
        export.to_tflite(around, tmp_path / "m.tflite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("quantization", "limit"), [("none", 1e-5), ("int8", 0.3)])
def test_several_sizes_share_weights(model, files, images, tmp_path, quantization, limit):
    options = {"quantization": quantization, "image_sizes": (48, (24, 40))}
    options |= {} if quantization == "none" else {"calibration": images}
    file = export.to_tflite(model, tmp_path / "sizes.tflite", **options)
    assert file.stat().st_size < 1.2 * files[quantization].stat().st_size  # Both have three graphs.
    any_size = model.any_resolution()
    for size, pictures in (("48x48", SQUARE), ("24x40", WIDE)):
        expected = keras.ops.convert_to_numpy(any_size(pictures * 2 - 1))
        assert np.abs(run(file, pictures, f"size_{size}") - expected).max() < limit
    assert interface_of(file)["image_size"] == [32, 32]


def test_a_convolutional_model_takes_any_size(tmp_path):
    arguments = {"num_layers": (1,), "width_factor": 0.5, "num_classes": 5}
    model = with_noise(keras_vit.ResNetV2(**arguments, image_size=32))
    file = export.to_tflite(model, tmp_path / "m.tflite", image_sizes=(48,))
    larger = keras_vit.ResNetV2(**arguments, image_size=48)
    larger.set_weights(model.get_weights())
    np.testing.assert_allclose(run(file, SQUARE, "size_48x48"), answer(larger, SQUARE), atol=1e-5)


def test_narrow_ranges_of_calibration_are_said(model, images, tmp_path, caplog):
    options = {"quantization": "int8", "batch_sizes": (9,)}  # of which there are too few
    outliers = 0.4 + 0.1 * images
    outliers[:, 0, 0], outliers[:, 1, 1] = 0, 1
    for calibration, said in ((images, False), (0.4 + 0.1 * images, True), (outliers, True)):
        caplog.clear()
        with pytest.raises(ValueError, match="at least 9"):
            export.to_tflite(model, tmp_path / "m", calibration=calibration, **options)
        assert ("pixels in [0.4, 0.5] nearly alone" in caplog.text) == said


def test_activations_range_over_their_extremes(plain, files, images):
    interpreter = Interpreter(str(plain), experimental_preserve_all_tensors=True)
    run = interpreter.get_signature_runner("serving_default")
    seen = collections.defaultdict(lambda: [0.0])
    for image in images:
        run(image=image[None])
        for each in interpreter.get_tensor_details():
            values = interpreter.get_tensor(each["index"])
            seen[each["name"]] += [values.min(), values.max()]
    compared = 0
    for each in Interpreter(str(files["int8"])).get_tensor_details():
        scales = each["quantization_parameters"]["scales"]
        if each["dtype"] == np.int8 and each["name"] in seen and len(scales) == 1:
            width = np.ptp(seen[each["name"]])
            np.testing.assert_allclose(255 * scales[0], width, rtol=1e-4, err_msg=each["name"])
            compared += 1
    assert compared > 10


def one_small_token(make_vit, kind):
    """Returns a model whose attention begins with tokens near zero among large ones."""
    position = "sincos_2d" if kind == "class token" else "learned_1d"
    model = make_vit(num_layers=4, position_embedding=position, register_tokens=4)
    for path, size in (("class_token", 0), ("register_tokens", 1e-6), ("position_embedding", 1e-6)):
        for weight in [each for each in model.weights if path in each.path]:
            weight.assign(size * weight / np.abs(weight).max())
    return model


# Of the deviation of the logits: int8 weights alone cost half of it.
@pytest.mark.rows("class token", long=["registers"])
def test_tokens_near_zero_do_not_spoil_the_others(kind, make_vit, images, tmp_path):
    model = one_small_token(make_vit, kind)
    limits = {"dynamic": 0.04, "int16x8": 0.05, "int8-int16": 0.07, "int8-full": 0.2}
    files = {name: tmp_path / f"{name}.tflite" for name in limits}
    export.to_tflite(model, tmp_path, quantization=limits, calibration=images)
    found = {name: verify(model, file, images).relative_error for name, file in files.items()}
    assert all(found[name] < limit for name, limit in limits.items()), found


def test_weights_lie_in_the_flatbuffer_and_old_readers_know_the_operations(make_vit, tmp_path):
    wide = make_vit(hidden_size=128, mlp_dim=512)  # LiteRT's quantizer inlines 256 KiB at most
    file = export.to_tflite(wide, tmp_path / "m.tflite", quantization="float16")
    tree = schema.ModelT.InitFromPackedBuf(file.read_bytes(), 0)
    assert not any(buffer.offset for buffer in tree.buffers)
    codes = [(code.deprecatedBuiltinCode, code.builtinCode) for code in tree.operatorCodes]
    assert codes == [(min(code, 127), code) for _, code in codes]
