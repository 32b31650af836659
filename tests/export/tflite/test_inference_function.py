"""Inference on CPUs: the model's outputs, whichever runtime computes them."""

import gc
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import keras_vit
from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.training.errors import UsageError

# Forks and threads are tried in OpenVINO where it is installed: LiteRT minds them less.
RUNTIME = "openvino" if importlib.util.find_spec("openvino") else "litert"
SETTINGS = {"threads": 2, "batch_size": 2, "runtime": RUNTIME}


def openvino():
    pytest.importorskip(
        "openvino", reason="the extra openvino is not installed: make test-runtimes"
    )


@pytest.fixture(scope="module")
def pixels():
    """(9, 32, 32, 3) float32 in [-1, 1]."""
    return np.random.default_rng(2).uniform(-1, 1, (9, 32, 32, 3)).astype("float32")


@pytest.fixture(scope="module")
def model(make_vit):
    return make_vit()


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "small.tflite"
    keras_vit.inference_function(model).save(file)
    return file


def outputs_of(model, pixels):
    return np.float32(keras.ops.convert_to_numpy(model(pixels, training=False)))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"classifier": "map", "gelu": "erf"},
        {"classifier": "token_gap", "register_tokens": 2},
        {"num_classes": None},
        {"resnet": {"num_layers": (1, 1)}, "patch_size": 1},
        {"attention": "axial", "classifier": "gap"},
        {"position_embedding": "relative"},
        {"dtype": "mixed_bfloat16"},
    ],
    ids=str,
)
def test_outputs_are_the_models(make_vit, pixels, arguments):
    infer = keras_vit.inference_function(make_vit(**arguments))
    exact = make_vit(**{**arguments, "dtype": "float32"})
    for number in (1, 2, 9):
        expected = outputs_of(exact, pixels[:number])
        np.testing.assert_allclose(infer(pixels[:number]), expected, atol=1e-5, rtol=1e-5)
    assert infer.image_shape == (32, 32, 3)
    assert infer.runtime == "litert"


@pytest.mark.parametrize("kind", [keras_vit.ResNetV2, keras_vit.AxialResNet])
def test_convolutional_models_too(randomize, pixels, kind):
    model = randomize(kind((1, 1), 0.5, num_classes=5, image_size=32))
    expected = outputs_of(model, pixels)
    atol = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(keras_vit.inference_function(model)(pixels), expected, atol=atol)


@pytest.mark.parametrize(
    "arguments", [{}, {"batch_size": 8, "threads": 2}, {"precision": "bfloat16"}], ids=str
)
def test_openvino(model, pixels, arguments):
    openvino()
    expected = outputs_of(model, pixels)
    limit = 5e-2 if "precision" in arguments else 1e-5
    infer = keras_vit.inference_function(model, **{"runtime": "openvino", **arguments})
    assert infer.runtime == "openvino"
    assert np.abs(infer(pixels) - expected).max() < limit * np.abs(expected).max()


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [(["FP32", "BF16"], ["openvino", "openvino", "litert"]), (["FP32"], ["litert"] * 3)],
    ids=str,
)
def test_the_processor_chooses(make_vit, monkeypatch, capabilities, expected):
    openvino()
    monkeypatch.setattr("openvino.Core.get_property", lambda *_: capabilities)
    large = make_vit(hidden_size=1024, num_heads=16, mlp_dim=4096)
    kinds = ("float32", "bfloat16", "int8")
    assert [keras_vit.inference_function(large, kind).runtime for kind in kinds] == expected


def test_what_computes_in_bfloat16_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UsageError, match=r"^Expected the package openvino"):
        keras_vit.inference_function(model, "bfloat16")


@pytest.mark.parametrize(("runtime", "interpreters"), [("litert", 4), ("openvino", 1)])
def test_interpreters_are_opened_for_litert_alone(saved, monkeypatch, runtime, interpreters):
    if runtime == "openvino":
        openvino()
    opened = []

    def count(*arguments, **settings):
        opened.append(arguments)
        return Interpreter(*arguments, **settings)

    monkeypatch.setattr("ai_edge_litert.interpreter.Interpreter", count)
    keras_vit.load_inference_function(saved, batch_size=4, threads=4, runtime=runtime)
    assert len(opened) == interpreters


@pytest.mark.parametrize("calibrated", [False, True])
def test_weights_in_int8_are_near_and_smaller(make_vit, pixels, saved, tmp_path, calibrated):
    model = make_vit(hidden_size=64, mlp_dim=256)
    options = {"calibration": pixels} if calibrated else {}
    infer = keras_vit.inference_function(model, "int8", **options)
    expected = outputs_of(model, pixels)
    assert 0 < np.abs(infer(pixels) - expected).max() < 0.1 * np.abs(expected).max()
    infer.save(tmp_path / "int8.tflite")
    export.to_tflite(model, tmp_path / "float32.tflite")
    sizes = [(tmp_path / f"{name}.tflite").stat().st_size for name in ("int8", "float32")]
    assert sizes[0] < 0.5 * sizes[1]
    reference = {"quantization": "int8", "calibration": (pixels + 1) / 2} if calibrated else {}
    export.to_tflite(model, tmp_path / "again", **{"quantization": "dynamic", **reference})
    again = keras_vit.load_inference_function(tmp_path / "again")
    np.testing.assert_array_equal(again(pixels), infer(pixels))


def test_it_keeps_its_weights(make_vit, pixels):
    model = make_vit()
    infer = keras_vit.inference_function(model)
    before = infer(pixels)
    for weight in model.weights:
        weight.assign_add(np.ones(weight.shape, "float32"))
    np.testing.assert_array_equal(infer(pixels), before)


def test_saved_and_loaded_it_is_the_same(model, pixels, saved, tmp_path):
    loaded = keras_vit.load_inference_function(saved, threads=1)
    np.testing.assert_array_equal(loaded(pixels), keras_vit.inference_function(model)(pixels))
    loaded.save(tmp_path / "again.tflite")
    assert (tmp_path / "again.tflite").read_bytes() == saved.read_bytes()
    # It is a file like any other, whose labels and preprocessing others read.
    assert export.verify(model, saved, (pixels + 1) / 2, costs=False).ok


@pytest.mark.parametrize("settings", [{}, {"batch_size": 8, "threads": 4}], ids=str)
def test_threads_get_their_own_answers(pixels, saved, settings):
    expected = keras_vit.load_inference_function(saved, threads=1)(pixels)
    infer = keras_vit.load_inference_function(saved, **settings)
    np.testing.assert_array_equal(infer(pixels), expected)
    found: dict[int, list[np.ndarray]] = {}

    def run(number):
        found[number] = [infer(pixels[number % 9 : number % 9 + 1]) for _ in range(20)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, outputs in found.items():
        assert (np.concatenate(outputs) == expected[number % 9]).all()
    assert len(found) == 16


def test_the_temporary_file_goes_with_the_function(model, pixels, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    infer = keras_vit.inference_function(model)
    assert list(tmp_path.rglob("*.tflite"))
    del infer
    gc.collect()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="runtime"):
        keras_vit.inference_function(model, precision="bfloat16", runtime="litert")
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_are_explained(make_vit, model, pixels, saved):
    for arguments, message in (
        ({"precision": "float16"}, "`precision` must be one of .*'float16'"),
        ({"calibration": pixels}, "precision=.int8. for calibration. Received: 'float32'"),
        ({"precision": "int8", "calibration": pixels * 9}, r"Expected images in \[-1, 1\]"),
        ({"precision": "int8", "calibration": pixels > 0}, "floats.*bool"),
        ({"threads": 0}, "`threads` must be a positive int. Received: 0"),
        ({"batch_size": True}, "`batch_size` must be a positive int. Received: True"),
        ({"batch_size": None}, "`batch_size` must be a positive int. Received: None"),
        ({"runtime": "onnx"}, "litert or openvino.*'onnx'"),
    ):
        with pytest.raises((ValueError, UsageError), match=message):
            keras_vit.inference_function(model, **arguments)
    around = keras.Sequential([keras.Input((32, 32, 3)), model, keras.layers.Dense(2)])
    with pytest.raises(ExportError, match=f"model.get_layer.'{model.name}'"):
        keras_vit.inference_function(around)
    infer = keras_vit.load_inference_function(saved)
    black = np.zeros((1, 32, 32, 3), "uint8")
    for images in (pixels[:, :16], pixels[0], pixels[:0], "cat.jpg", None, ["cat.jpg"], black):
        with pytest.raises(ValueError, match=r"Expected images of shape \(n, 32, 32, 3\)"):
            infer(images)
    for images in (pixels * 255, np.where(pixels > 0, pixels, np.nan)):
        with pytest.raises(ValueError, match=r"Expected images in \[-1, 1\]. Received: values in"):
            infer(images)


def test_pixels_between_0_and_1_are_warned_of(model, pixels, saved):
    infer, unit = keras_vit.load_inference_function(saved), np.abs(pixels)
    make = keras_vit.inference_function
    for use in (lambda: infer(unit), lambda: make(model, "int8", calibration=unit)):
        with pytest.warns(UserWarning, match=r"pass images \* 2 - 1") as warned:
            use()
        assert {each.filename for each in warned} == {__file__}


def test_a_damaged_file_is_refused(saved, tmp_path):
    file = tmp_path / "small.tflite"
    whole = saved.read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"small\.tflite cannot be run by LiteRT"):
            keras_vit.load_inference_function(file)
    with pytest.raises(FileNotFoundError):
        keras_vit.load_inference_function(tmp_path / "none.tflite")


def test_files_of_another_kind_are_refused(tmp_path):
    for name, shape, function in (
        ("gray", (1, 8, 8, 1), lambda x: x[:, 0, 0]),
        ("rank", (1, 8, 8), lambda x: x[:, 0]),
        ("sum", (1, 8, 8, 3), lambda x: tf.reduce_sum(x, 0)),
        ("class", (1, 8, 8, 3), lambda x: tf.argmax(x[:, 0], 1)),
        ("dynamic", (1, None, None, 3), lambda x: tf.reduce_mean(x, (1, 2))),
    ):
        module = tf.Module()
        signature = tf.TensorSpec(shape, tf.float32, name="image")
        module.infer = tf.function(function, input_signature=[signature])
        tf.saved_model.save(module, str(tmp_path / name), module.infer)
        file = tmp_path / f"{name}.tflite"
        file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / name)).convert())
        with pytest.raises(ValueError, match=name):
            keras_vit.load_inference_function(file)


def test_the_file_that_was_loaded_is_saved(saved, tmp_path, pixels):
    (tmp_path / "m.tflite").write_bytes(saved.read_bytes())
    infer = keras_vit.load_inference_function(tmp_path / "m.tflite")
    (tmp_path / "m.tflite").unlink()
    infer.save(tmp_path / "again.tflite")
    assert (tmp_path / "again.tflite").read_bytes() == saved.read_bytes()


def test_what_is_dropped_is_gone_at_once(saved, pixels):
    gc.disable()
    try:
        infer = keras_vit.load_inference_function(saved, threads=2, batch_size=2)
        infer(pixels)
        inside = weakref.ref(infer._function)
        del infer
        assert inside() is None
    finally:
        gc.enable()


def test_a_pickle_is_refused(saved):
    with pytest.raises(TypeError, match=r"save\(path\) here, load_inference_function\(path\)"):
        pickle.dumps(keras_vit.load_inference_function(saved))


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
from keras_vit import load_inference_function
images = np.zeros((2, 32, 32, 3), "float32")
for _ in range(10):
    if not os.fork():
        signal.alarm(60)
        load_inference_function({str(saved)!r}, **{SETTINGS})(images)
        os._exit(0)
    if os.wait()[1]:
        raise SystemExit(1)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_save_that_fails_leaves_the_old_file(saved, tmp_path, monkeypatch):
    infer = keras_vit.load_inference_function(saved)
    infer.save(tmp_path / "m.tflite")

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr("shutil.copyfileobj", fail)
    with pytest.raises(OSError, match="disk full"):
        infer.save(tmp_path / "m.tflite")
    assert [file.name for file in tmp_path.iterdir()] == ["m.tflite"]
    assert (tmp_path / "m.tflite").read_bytes() == saved.read_bytes()


def test_other_backends_are_refused(model, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"'jax'\. Set KERAS_BACKEND=tensorflow"):
        keras_vit.inference_function(model)
