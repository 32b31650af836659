import json
import re
import zipfile

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit

TENSORFLOW = keras.backend.backend() == "tensorflow"
needs_tensorflow = pytest.mark.skipif(not TENSORFLOW, reason="TensorFlow's graphs are its subject")
RNG = np.random.default_rng(0)
SMALL = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 48,
    "num_layers": 2,
    "num_heads": 3,
    "mlp_dim": 96,
    "num_classes": 7,
}


def model_of(kind=keras_vit.VisionTransformer, dtype="float32", **arguments):
    keras.utils.set_random_seed(0)
    model = kind(**{**SMALL, **arguments}, dtype="float32")
    for weight in model.weights:
        # Small weights make small variances, where the normalization's epsilon counts.
        value = ops.convert_to_numpy(weight)
        weight.assign(value * 0.2 + RNG.normal(0, 0.05, value.shape))
    if dtype == "float32":
        return model
    copy = kind(**{**SMALL, **arguments}, dtype=dtype)
    copy.set_weights(model.get_weights())
    return copy


def images_of(model, number):
    return RNG.uniform(-1, 1, (number, *model.input_shape[1:])).astype("float32")


@needs_tensorflow
@pytest.mark.parametrize(
    "arguments, constants",
    [
        ({}, False),
        ({}, True),
        ({"classifier": "gap"}, False),
        ({"classifier": "map"}, False),
        ({"classifier": "token_gap", "register_tokens": 2, "in_channels": 4}, False),
        ({"gelu": "erf"}, False),
        ({"gelu": "erf"}, True),
        ({"num_classes": None}, False),
        ({"representation_size": 24}, False),
        ({"resnet": {"num_layers": (1, 1)}, "patch_size": 1}, False),
        ({"resnet": {"num_layers": (1, 1)}, "patch_size": 1}, True),
        ({"attention": "axial", "classifier": "gap"}, False),
        ({"position_embedding": "relative"}, True),
    ],
)
def test_outputs_are_the_models(arguments, constants):
    model = model_of(**arguments)
    images = images_of(model, 5)
    infer = keras_vit.inference_function(model, batch_size=2, constants=constants)
    expected = ops.convert_to_numpy(model(images, training=False))
    np.testing.assert_allclose(infer(images), expected, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(infer(images[:1]), expected[:1], atol=1e-5, rtol=1e-5)


@needs_tensorflow
@pytest.mark.parametrize(
    "build",
    [
        lambda: keras_vit.ResNetV2((1, 1), 0.5, num_classes=5, image_size=32),
        lambda: keras_vit.AxialResNet((1, 2), 0.25, 2, num_classes=5, image_size=(16, 24)),
    ],
)
def test_convolutional_models_too(build):
    model = build()
    images = images_of(model, 2)
    infer = keras_vit.inference_function(model, constants=True)
    expected = ops.convert_to_numpy(model(images, training=False))
    np.testing.assert_allclose(infer(images), expected, atol=1e-5, rtol=1e-5)


@needs_tensorflow
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_bfloat16_is_as_near_to_float32_as_the_models(dtype):
    exact, rounded = model_of(), model_of(dtype=dtype)
    images = images_of(exact, 16)
    expected = ops.convert_to_numpy(exact(images, training=False))

    def error(outputs):
        return np.linalg.norm(np.float32(outputs) - expected) / np.linalg.norm(expected)

    own = error(ops.convert_to_numpy(ops.cast(rounded(images, training=False), "float32")))
    assert error(keras_vit.inference_function(rounded)(images)) < max(1.3 * own, 5e-3)


@needs_tensorflow
def test_projections_that_are_more_than_a_product_stay_as_they_are():
    quantized, adapted = model_of(), model_of()
    quantized.quantize("int8")
    for layer in adapted._flatten_layers():
        if layer.name in ("query", "value"):
            layer.enable_lora(2)
            layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    for model in (quantized, adapted):
        images = images_of(model, 3)
        expected = ops.convert_to_numpy(model(images, training=False))
        np.testing.assert_allclose(
            keras_vit.inference_function(model)(images), expected, atol=1e-4, rtol=1e-4
        )


@needs_tensorflow
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_normalization_that_is_used_often_keeps_its_precision(dtype):
    layer = keras_vit.layers.LayerNormalization(dtype=dtype)
    tokens = inputs = keras.Input((4, 4, 64), dtype="float32")
    for _ in range(3):
        tokens = ops.cast(layer(tokens), "float32") + inputs
    model = keras.Model(inputs, tokens)
    images = 100 + images_of(model, 2)
    expected = np.float32(ops.convert_to_numpy(model(images, training=False)))
    outputs = keras_vit.inference_function(model, batch_size=2)(images)
    np.testing.assert_allclose(outputs, expected, atol=1e-2 if dtype == "bfloat16" else 1e-4)


@needs_tensorflow
def test_normalizations_and_projections_are_fused():
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port

    if not _pywrap_util_port.IsMklEnabled():
        pytest.skip("oneDNN, which is what fuses, is not in this TensorFlow or is turned off")
    for constants in (False, True):
        infer = keras_vit.inference_function(model_of(), batch_size=2, constants=constants)
        operations = _operations(lambda infer=infer: infer(tf.zeros((2, 32, 32, 3))))
        # Two in every block; the last one, of the class token alone, is too small to matter.
        assert operations.count("_MklLayerNorm") >= 2 * SMALL["num_layers"]
        assert "Softmax" in operations
        fused = operations.count("_MklNativeFusedMatMul" if constants else "_FusedMatMul")
        # Per block: queries, keys and values; the attention's output; both layers of the MLP.
        assert fused >= 4 * SMALL["num_layers"]


@needs_tensorflow
@pytest.mark.parametrize(
    "flags, dtype, forced",
    [("avx2", "bfloat16", False), ("avx2 avx512f", "bfloat16", True), ("avx2", "float32", True)],
)
def test_kernels_of_bfloat16_are_named_where_the_processor_has_them(
    monkeypatch, flags, dtype, forced
):
    from tensorflow.python.util import _pywrap_util_port

    from keras_vit.backends.cpu import frozen_graph
    from keras_vit.backends.cpu.onednn import frozen_graph_of

    if not _pywrap_util_port.IsMklEnabled():
        pytest.skip("oneDNN is not in this TensorFlow or is turned off")
    graph = frozen_graph_of(model_of(dtype=dtype), (None, 32, 32, 3))
    monkeypatch.setattr(frozen_graph.pathlib.Path, "read_text", lambda *_, **__: flags)
    operations = {node.op for node in graph._with_constants().node}
    assert ("_MklNativeFusedMatMul" in operations) == forced


def _operations(run):
    """Returns the operations of the optimized graph of what `run` calls."""
    from tensorflow.python.eager import context

    context.enable_run_metadata()
    try:
        run()
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    return [node.op for graph in graphs for node in graph.post_optimization_graph.node]


@needs_tensorflow
@pytest.mark.parametrize("constants", [False, True])
def test_it_keeps_its_weights(constants):
    model = model_of()
    images = images_of(model, 2)
    infer = keras_vit.inference_function(model, batch_size=2, constants=constants)
    before = infer(images)
    for weight in model.weights:
        weight.assign_add(np.ones(weight.shape, "float32"))
    np.testing.assert_array_equal(infer(images), before)


@needs_tensorflow
def test_wrong_arguments_are_explained():
    model = model_of()
    with pytest.raises(ValueError, match="positive int"):
        keras_vit.inference_function(model, batch_size=0)
    with pytest.raises(ValueError, match="batch_size"):
        keras_vit.inference_function(model, batch_size=True)
    for other in (
        model.any_resolution(),
        keras.Model(model.input, [model.output, model.endpoints["representation"]]),
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]),
        keras.Model(),
    ):
        with pytest.raises(ValueError, match="one size, with one output"):
            keras_vit.inference_function(other)
    infer = keras_vit.inference_function(model)
    for images in (np.zeros((2, 16, 16, 3)), np.zeros((32, 32, 3)), np.zeros((0, 32, 32, 3))):
        with pytest.raises(ValueError, match=r"\(n, 32, 32, 3\)"):
            infer(images)
    for images in (None, "cat.jpg", ["cat.jpg"], object()):
        with pytest.raises(ValueError, match=r"\(n, 32, 32, 3\), an array of numbers. Received: "):
            infer(images)


@pytest.mark.skipif(TENSORFLOW, reason="it works there")
def test_other_backends_are_refused():
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow"):
        keras_vit.inference_function(model_of())
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow"):
        keras_vit.load_inference_function("some.inference")


@needs_tensorflow
@pytest.mark.parametrize("constants", [False, True])
def test_any_number_of_images(constants):
    model = model_of()
    images = images_of(model, 9)
    infer = keras_vit.inference_function(model, batch_size=4, constants=constants)
    expected = ops.convert_to_numpy(model(images, training=False))
    for number in range(1, 10):
        np.testing.assert_allclose(infer(images[:number]), expected[:number], atol=1e-5, rtol=1e-5)


@needs_tensorflow
def test_weights_stay_out_of_the_graph():
    from keras_vit.backends.cpu.onednn import frozen_graph_of

    model = model_of(dtype="mixed_bfloat16")
    graph = frozen_graph_of(model, (None, 32, 32, 3))
    kernels = [value.dtype.name for value in graph.weights.values() if len(value.shape) == 2]
    # In the precision that they are computed in, each of them once; the head computes in float32.
    # The last block makes queries of the class token alone, apart from keys and values.
    assert sorted(kernels) == ["bfloat16"] * (4 * SMALL["num_layers"] + 1) + ["float32"]
    assert sum(int(np.prod(value.shape)) for value in graph.weights.values()) < (
        1.01 * model.count_params()
    )
    assert graph.definition.ByteSize() < 2000 * len(graph.definition.node)
    assert all(
        node.attr["value"].tensor.ByteSize() < 200
        for node in graph.definition.node
        if node.op == "Const"
    )


@needs_tensorflow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed_bfloat16"])
def test_saved_and_loaded_it_is_the_same(dtype, tmp_path):
    model = model_of(dtype=dtype)
    images = images_of(model, 3)
    infer = keras_vit.inference_function(model, batch_size=2)
    expected = infer(images)
    infer.save(tmp_path / "small.inference")
    loaded = keras_vit.load_inference_function(tmp_path / "small.inference")
    np.testing.assert_array_equal(loaded(images), expected)
    assert (loaded.batch_size, loaded.image_shape) == (2, (32, 32, 3))
    # The same file again, from what was loaded.
    loaded.save(tmp_path / "again.inference")
    again, first = (keras_vit.load_inference_function(file) for file in tmp_path.iterdir())
    np.testing.assert_array_equal(again(images), first(images))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of a small model."""
    file = tmp_path_factory.mktemp("saved") / "small.inference"
    keras_vit.inference_function(model_of()).save(file)
    return file


@needs_tensorflow
def test_a_damaged_file_is_refused(tmp_path):
    file = tmp_path / "small.inference"
    keras_vit.inference_function(model_of()).save(file)
    whole = file.read_bytes()
    place = whole.index(b"\x93NUMPY") + 4000
    damaged = [b"", b"text", whole[: len(whole) // 2], whole[:-30]]
    damaged.append(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    damaged.append(whole.replace(b'"version": 1', b'"version": 2'))
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"InferenceFunction\.save wrote"):
            keras_vit.load_inference_function(file)
    with pytest.raises(FileNotFoundError):
        keras_vit.load_inference_function(tmp_path / "none.inference")


@needs_tensorflow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {}}, "batch_size"),
        ({"settings": {"batch_size": 4}}, "constants"),
        ({"settings": {"batch_size": 4, "constants": False, "threads": 2}}, "threads"),
        ({"settings": {"batch_size": "4", "constants": False}}, "'4'"),
        ({"settings": {"batch_size": 2.5, "constants": False}}, "2.5"),
        ({"settings": {"batch_size": True, "constants": False}}, "True"),
        ({"settings": {"batch_size": 0, "constants": False}}, "positive int"),
        ({"settings": {"batch_size": 4, "constants": "no"}}, "'no'"),
        ({"settings": [4, False]}, "list"),
        ({"settings": None}, "None"),
        ({"shape": [None, 32, 32]}, ""),
        ({"shape": 32}, ""),
        ({"images": "nothing:0"}, "nothing:0"),
        ({"output": "nothing:0"}, ""),
        ({"output": 1}, ""),
        ({"weights": {}}, "other tensors than it holds"),
        ({"version": 2, "tensorflow": "3.0.0"}, "version 2, written with TensorFlow 3.0.0"),
        ({"version": None}, "version None"),
        ([], ""),
        ("{", "Expecting"),
    ],
    ids=str,
)
def test_a_description_that_save_does_not_write_is_refused(change, message, saved, tmp_path):
    file = tmp_path / "changed.inference"
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(file, "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(".json"):
                described = json.loads(content) | change if isinstance(change, dict) else change
                content = described if isinstance(change, str) else json.dumps(described)
            changed.writestr(name, content)
    expected = rf"InferenceFunction\.save wrote. Received: .*{re.escape(message)}"
    with pytest.raises(ValueError, match=expected):
        keras_vit.load_inference_function(file)


@needs_tensorflow
def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "small.inference"
    infer = keras_vit.inference_function(model_of())
    infer.save(file)
    whole = file.read_bytes()

    def fail(*arguments, **keywords):
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="disk full"):
        infer.save(file)
    assert file.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [file]
