import gc
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.training.errors import UsageError
from keras_vit.training.inference.exported_functions import TFLiteFunction

# Forks and threads are tried in OpenVINO where it is installed: LiteRT minds them less.
RUNTIME = "openvino" if importlib.util.find_spec("openvino") else "litert"
with_openvino = pytest.mark.skipif(RUNTIME == "litert", reason="make test-runtimes installs it")
PIXELS = np.random.default_rng(2).uniform(-1, 1, (9, 32, 32, 3)).astype("float32")
SETTINGS = {"threads": 2, "batch_size": 2, "runtime": RUNTIME}


@pytest.fixture(scope="module")
def model(make_vit):
    return make_vit()


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "small.tflite"
    keras_vit.inference_function(model).save(file)
    return file


def outputs_of(model, pixels=PIXELS):
    return np.float32(keras.ops.convert_to_numpy(model(pixels, training=False)))


@with_openvino
def test_openvino_takes_quantized_weights_in_one_stream(model, saved, tmp_path):
    quantized = export.to_tflite(model, tmp_path / "m.tflite", quantization="dynamic")
    for file, streams in ((saved, 2), (quantized, 1)):
        assert TFLiteFunction(file, "openvino", threads=2, at_once=2)._idle.qsize() == streams


def test_masks_are_computed_side_by_side(segmenter):
    pixels = np.random.default_rng(3).uniform(-1, 1, (5, 32, 48, 3)).astype("float32")
    found = keras_vit.inference_function(segmenter, batch_size=2, threads=2)(pixels)
    np.testing.assert_allclose(found, outputs_of(segmenter, pixels), atol=5e-5)


@pytest.mark.parametrize(
    "arguments",
    [{"classifier": "map", "gelu": "erf", "dtype": "mixed_bfloat16"}, {"num_classes": None}],
    ids=str,
)
def test_outputs_are_the_models(make_vit, arguments):
    exact = make_vit(**{"num_layers": 1, **arguments, "dtype": "float32"})
    infer = keras_vit.inference_function(make_vit(**{"num_layers": 1, **arguments}))
    for number in (1, 2, 9):
        expected = outputs_of(exact, PIXELS[:number])
        atol = 1e-5 * max(np.abs(expected).max(), 1)
        np.testing.assert_allclose(infer(PIXELS[:number]), expected, atol=atol, rtol=1e-5)
    assert infer.image_shape == (32, 32, 3) and infer.runtime == "litert"


@with_openvino
@pytest.mark.parametrize(
    "arguments", [{}, {"batch_size": 8, "threads": 2}, {"precision": "bfloat16"}], ids=str
)
def test_openvino(model, arguments):
    expected = outputs_of(model)
    limit = 5e-2 if "precision" in arguments else 1e-5
    infer = keras_vit.inference_function(model, **{"runtime": "openvino", **arguments})
    assert infer.runtime == "openvino"
    assert np.abs(infer(PIXELS) - expected).max() < limit * np.abs(expected).max()


@with_openvino
@pytest.mark.parametrize("capabilities", [["FP32", "BF16"], ["FP32"]], ids=str)
def test_the_processor_chooses(model, saved, tmp_path, monkeypatch, capabilities):
    monkeypatch.setattr("openvino.Core.get_property", lambda *_: capabilities)
    faster = "openvino" if "BF16" in capabilities else "litert"
    int8 = export.to_tflite(model, tmp_path / "int8.tflite", quantization="dynamic")
    size = saved.stat().st_size
    cases = [(saved, size - 1, {}, faster), (saved, size, {}, "litert")]
    cases += [(saved, size, {"bfloat16": True}, faster), (int8, 0, {}, "litert")]
    for file, smallest, options, expected in cases:
        monkeypatch.setattr("keras_vit.training.inference.exported_functions._LARGE", smallest)
        assert keras_vit.load_inference_function(file, **options).runtime == expected


@pytest.mark.parametrize("calibrated", [False, True])
def test_weights_in_int8_are_near_and_smaller(make_vit, tmp_path, calibrated):
    model = make_vit(hidden_size=64, mlp_dim=256, num_layers=1)
    options = {"calibration": PIXELS} if calibrated else {}
    infer = keras_vit.inference_function(model, "int8", **options)
    expected = outputs_of(model)
    assert 0 < np.abs(infer(PIXELS) - expected).max() < 0.1 * np.abs(expected).max()
    # The file is that of the exporter, whose images are in [0, 1].
    infer.save(tmp_path / "int8.tflite")
    options = {"quantization": "int8", "calibration": (PIXELS + 1) / 2} if calibrated else {}
    file = export.to_tflite(model, tmp_path / "m", **{"quantization": "dynamic", **options})
    assert file.read_bytes() == (tmp_path / "int8.tflite").read_bytes()
    assert file.stat().st_size < 2 * model.count_params()


def test_saved_and_loaded_it_is_the_same_and_leaves_no_file(make_vit, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = make_vit(num_layers=1)
    infer = keras_vit.inference_function(model)
    with pytest.raises(ValueError, match="runtime"):
        keras_vit.inference_function(model, precision="bfloat16", runtime="litert")
    assert not list(tmp_path.iterdir())
    before, file, again = infer(PIXELS), tmp_path / "m.tflite", tmp_path / "again.tflite"
    infer.save(file)
    whole = file.read_bytes()
    # It is a file like any other, whose labels and preprocessing others read.
    assert export.verify(model, file, (PIXELS + 1) / 2, costs=False).ok
    loaded = keras_vit.load_inference_function(file, threads=1)
    file.unlink()
    loaded.save(again)  # It keeps its file and its weights.
    for weight in model.weights:
        weight.assign_add(np.ones(weight.shape, "float32"))
    for each in (infer, loaded):
        np.testing.assert_array_equal(each(PIXELS), before)
    monkeypatch.setattr("shutil.copyfileobj", Mock(side_effect=OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        infer.save(again)
    assert [each.name for each in tmp_path.iterdir()] == ["again.tflite"]
    assert again.read_bytes() == whole


@pytest.mark.parametrize("settings", [{}, {"batch_size": 8, "threads": 4}], ids=str)
def test_threads_get_their_own_answers(saved, settings):
    expected = keras_vit.load_inference_function(saved, threads=1)(PIXELS)
    infer = keras_vit.load_inference_function(saved, **settings)
    np.testing.assert_array_equal(infer(PIXELS), expected)

    def run(number):
        return [infer(PIXELS[number % 9 : number % 9 + 1])[0] for _ in range(20)]

    with ThreadPoolExecutor(16) as threads:
        for number, outputs in enumerate(threads.map(run, range(16))):
            assert (outputs == expected[number % 9]).all()


def test_wrong_arguments_are_explained(model, saved, monkeypatch):
    for arguments, message in (
        ({"precision": "float16"}, "`precision` must be one of .*'float16'"),
        ({"calibration": PIXELS}, "precision=.int8. for calibration. Received: 'float32'"),
        ({"precision": "int8", "calibration": PIXELS * 9}, r"Expected images in \[-1, 1\]"),
        ({"precision": "int8", "calibration": PIXELS > 0}, "floats.*bool"),
        ({"threads": 0}, "`threads` must be a positive int. Received: 0"),
        ({"batch_size": True}, "`batch_size` must be a positive int. Received: True"),
        ({"runtime": "onnx"}, "litert or openvino.*'onnx'"),
    ):
        with pytest.raises((ValueError, UsageError), match=message):
            keras_vit.inference_function(model, **arguments)
    head = [model, keras.layers.Dense(2)]
    for around, advice in (([model], "model.get_layer"), (head, "Its head stands out")):
        with pytest.raises(ExportError, match=advice):
            keras_vit.inference_function(keras.Sequential(around))
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UsageError, match=r"^Expected the package openvino"):
        keras_vit.inference_function(model, "bfloat16")
    infer = keras_vit.load_inference_function(saved)
    black = np.zeros((1, 32, 32, 3), "uint8")
    for images in (PIXELS[:, :16], PIXELS[0], PIXELS[:0], "cat.jpg", None, ["cat.jpg"], black):
        with pytest.raises(ValueError, match=r"Expected images of shape \(n, 32, 32, 3\)"):
            infer(images)
    for images in (PIXELS * 255, np.where(PIXELS > 0, PIXELS, np.nan)):
        with pytest.raises(ValueError, match=r"Expected images in \[-1, 1\]. Received: values in"):
            infer(images)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"'jax'\. Set KERAS_BACKEND=tensorflow"):
        keras_vit.inference_function(model)


def test_pixels_between_0_and_1_are_warned_of(model, saved):
    infer, unit = keras_vit.load_inference_function(saved), np.abs(PIXELS)
    make = keras_vit.inference_function
    for use in (lambda: infer(unit), lambda: make(model, "int8", calibration=unit)):
        with pytest.warns(UserWarning, match=r"pass images \* 2 - 1") as warned:
            use()
        assert {each.filename for each in warned} == {__file__}


def test_damaged_files_and_those_of_another_kind_are_refused(saved, tmp_path):
    file = tmp_path / "small.tflite"
    for content in (b"", saved.read_bytes()[: saved.stat().st_size // 2]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"small\.tflite cannot be run by LiteRT"):
            keras_vit.load_inference_function(file)
    for name, shape, function in (
        ("gray", (1, 8, 8, 1), lambda x: x[:, 0, 0]),
        ("sum", (1, 8, 8, 3), lambda x: tf.reduce_sum(x, 0)),
        ("class", (1, 8, 8, 3), lambda x: tf.argmax(x[:, 0], 1)),
        ("dynamic", (1, None, None, 3), lambda x: tf.reduce_mean(x, (1, 2))),
    ):
        module, folder = tf.Module(), str(tmp_path / name)
        module.infer = tf.function(function, [tf.TensorSpec(shape, tf.float32, name="image")])
        tf.saved_model.save(module, folder, module.infer)
        file = tmp_path / f"{name}.tflite"
        file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(folder).convert())
        with pytest.raises(ValueError, match=name):
            keras_vit.load_inference_function(file)


def test_what_is_dropped_is_gone_at_once(saved):
    infer = keras_vit.load_inference_function(saved, threads=2, batch_size=2)
    infer(PIXELS)
    inside = weakref.ref(infer._function)
    gc.disable()
    del infer
    gone = inside() is None
    gc.enable()
    assert gone


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_is_refused(saved):
    images = np.zeros((2, 32, 32, 3), "float32")
    infer = keras_vit.load_inference_function(saved, **SETTINGS)
    infer(images)
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            infer(images)
        except RuntimeError as error:
            os._exit("multiprocessing's spawn" not in str(error))
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.long
def test_the_first_call_may_come_from_several_threads(saved):
    code = f"""
import os, signal
import numpy as np, keras_vit
images = np.zeros((2, 32, 32, 3), "float32")
for _ in range(10):
    if not os.fork():
        signal.alarm(60)
        keras_vit.load_inference_function({str(saved)!r}, **{SETTINGS})(images)
        os._exit(0)
    if os.wait()[1]:
        raise SystemExit(1)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
