import keras
import numpy as np
import pytest
import tensorflow_hub as hub

import keras_vit
from benchmarks.errors_in_runtimes import with_noise
from keras_vit import export
from keras_vit.export import supported_models
from keras_vit.export.errors import ExportError
from keras_vit.models.inner_layers import inner_layers
from keras_vit.training.inference.interface import interface_of
from tests.export.conftest import run
from tests.tiny_vit import tiny_vit

PHOTOS = np.random.default_rng(0).uniform(0, 1, (4, 40, 36, 3)).astype("float32")
SQUARES = PHOTOS[:, :32, :32]


def test_no_export_of_a_diverged_model(make_vit, tmp_path):
    diverged = make_vit(num_layers=1)
    kernel = diverged.get_layer("embedding").weights[0]
    kernel.assign(np.full(kernel.shape, np.nan))
    for model in (diverged, keras_vit.MaskedPatchPrediction(diverged)):
        for write in (export.to_hub, export.to_tflite):
            with pytest.raises(ValueError, match=r"finite weights.*embedding/projection/kernel"):
                write(model, tmp_path / "out" / "artifact")
    assert not list(tmp_path.iterdir())


def test_lora_of_keras_is_handed_over(make_vit, images, tmp_path):
    model = make_vit(num_layers=1)
    for _, layer, _ in inner_layers(model):
        if isinstance(layer, keras.layers.Dense):
            layer.enable_lora(2)
            layer.lora_kernel_b.assign(keras.random.normal(layer.lora_kernel_b.shape, seed=1))
    file = export.to_tflite(model, tmp_path / "m.tflite")
    np.testing.assert_allclose(run(file, images), model(2 * images - 1), atol=1e-5)
    assert export.verify(model, file, images, costs=False).ok


@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_a_quantized_model_is_refused(make_vit, mode, tmp_path):
    model = make_vit(num_layers=1)
    model.quantize(mode)
    for write in (export.to_hub, export.to_tflite, keras_vit.save_checkpoint):
        with pytest.raises(ValueError, match=rf"model\.quantize\('{mode}'\) changed"):
            write(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_model_larger_than_a_file_can_be_is_refused_first(make_vit, tmp_path, monkeypatch):
    model = make_vit(num_layers=1)
    monkeypatch.setattr(supported_models, "FILE_LIMIT", 4 * model.count_params())
    with pytest.raises(ExportError, match=r"less than .* GiB.*export\.to_hub"):
        export.to_tflite(model, tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(supported_models, "FILE_LIMIT", 4 * model.count_params() + 1)
    supported_models.require_single_file(model)


@pytest.mark.rows("mixed_bfloat16", long=["mixed_float16"])
def test_layers_around_ours_are_handed_over_in_float32(policy, tmp_path):
    core = tiny_vit(image_size=32, num_classes=None, num_layers=1, dtype=policy)
    layers, dense = keras.layers, keras.layers.Dense(4, dtype=policy)
    before = keras.Sequential([layers.Rescaling(1 / 127.5, offset=-1, dtype=policy)])
    # A layer in two places has one kernel.
    around = [before, core, layers.Dense(4, dtype=policy), dense, dense]
    around += [layers.BatchNormalization(dtype=policy), layers.Dropout(0.5, dtype=policy)]
    model = sequential(*around, layers.Dense(2, activation="softmax", dtype=policy))
    dense.enable_lora(2, lora_alpha=7)
    dense.lora_kernel_b.assign(keras.random.normal((2, 4), stddev=0.1, seed=5))
    model.layers[-3].moving_mean.assign([1.0, 2, 3, 4])
    whole = supported_models.portable(model)
    probabilities = keras.ops.softmax(whole(2 * SQUARES - 1))
    np.testing.assert_allclose(probabilities, model(255 * SQUARES), atol=3e-2)
    assert {weight.dtype for weight in whole.weights} == {"float32"}
    assert whole.compute_dtype == whole(2 * SQUARES - 1).dtype.name == "float32"
    assert len(whole.weights) == len(model.weights) - 2  # LoRA's factors
    file = export.to_tflite(model, tmp_path / "m.tflite")
    np.testing.assert_allclose(run(file, SQUARES), whole(2 * SQUARES - 1), rtol=1e-5, atol=1e-5)
    pipeline = layers.Pipeline([layers.Dense(3, dtype=policy)])
    for other in (pipeline, layers.Lambda(abs, dtype=policy)):
        with pytest.raises(ExportError, match=f"Received: {other.name}, "):
            supported_models.portable(sequential(core, other, layers.Dense(2)))


@pytest.mark.parametrize("decoder", ["mask", "linear"])
def test_a_segmenter_is_handed_over_in_float32_and_trainable(decoder, make_vit, tmp_path):
    encoder = make_vit(num_layers=1, num_classes=None, dtype="mixed_bfloat16", remat=True)
    model = with_noise(keras_vit.Segmenter(encoder, 5, decoder))
    model.class_names, model.get_layer("embedding").trainable = list("abcde"), False
    found = supported_models.portable(model)
    assert {each.dtype for each in found.weights} == {"float32"}
    assert found.class_names == model.class_names and found.encoder.arguments["remat"] is False
    assert len(found.trainable_weights) == len(found.weights) == len(model.weights)
    same = type(model).from_config(model.get_config())
    same.set_weights(found.get_weights())
    np.testing.assert_array_equal(same(2 * SQUARES - 1), model(2 * SQUARES - 1))
    for write, wanted in ((export.to_hub, {"output": "representation"}), (export.to_tflite, {})):
        with pytest.raises(ValueError, match=r"representation.*of a model that classifies pixels"):
            write(model, tmp_path / "m", **wanted or {"feature_vector": True})
    assert not list(tmp_path.iterdir())


def test_layers_around_a_segmenter_are_handed_over(segmenter, scenes, tmp_path):
    scale = keras.layers.Rescaling(1 / 127.5, offset=-1)
    around = keras.Sequential([keras.Input((32, 48, 3)), scale, segmenter])
    file = export.to_tflite(around, tmp_path / "m.tflite")
    assert interface_of(file)["classifies"] == "pixel"
    np.testing.assert_allclose(run(file, scenes), around(255 * scenes), atol=5e-5)
    assert export.verify(around, file, scenes, costs=False).ok


@pytest.fixture(scope="module")
def core(make_vit):
    return make_vit(num_classes=None, num_layers=1)


def sequential(*layers, size=(32, 32, 3)):
    return with_head(keras.Sequential([keras.Input(size), *layers]))


def with_head(model):
    for weight in model.layers[-1].weights:
        weight.assign(keras.random.normal(weight.shape, seed=3))
    return model


def served(module, images):
    return module.signatures["serving_default"](images=keras.ops.convert_to_tensor(images))


def handed_over(model, directory):
    module = export.to_hub(model, directory / "m", labels=["a", "b", "c"])
    for path in (module, export.to_tflite(model, directory / "m.tflite")):
        report = export.verify(model, path, PHOTOS, costs=False)
        assert report.ok, str(report)
    return hub.load(str(module))


@pytest.mark.long
def test_everything_before_and_after_is_handed_over(core, tmp_path):
    layers = keras.layers
    before = [layers.RandomFlip("horizontal"), layers.Resizing(32, 32)]
    before.append(layers.Rescaling(1 / 127.5, offset=-1))
    model = sequential(*before, core, layers.Dropout(0.5), layers.Dense(3), size=(40, 36, 3))
    module = handed_over(model, tmp_path)
    expected = keras.ops.convert_to_numpy(model(PHOTOS * 255, training=False))
    np.testing.assert_allclose(module(PHOTOS), expected, atol=1e-4)
    assert module.feature_vector(PHOTOS).shape == (4, 32)
    # The module trains: the model inside, and the head.
    assert len(module.trainable_variables) == len(core.weights) + 2


@pytest.mark.parametrize(("scale", "low", "high"), [(2, 0, 1), (1 / 127.5, 0, 255), (None, -1, 1)])
def test_the_range_of_images_is_found(core, tmp_path, scale, low, high):
    before = [keras.layers.Rescaling(scale, offset=-1.0)] if scale else []
    model = sequential(*before, core, keras.layers.Dense(3))
    expected = keras.ops.convert_to_numpy(model(SQUARES * (high - low) + low, training=False))
    found = run(export.to_tflite(model, tmp_path / "m.tflite"), SQUARES)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("scale", [1 / 127.5 * 1.02, 1 / 127.5 * 0.98])
def test_a_range_that_is_nearly_one_of_them_is_none(core, tmp_path, scale):
    model = sequential(keras.layers.Rescaling(scale, offset=-1.0), core, keras.layers.Dense(3))
    with pytest.raises(ExportError, match=r"that bring images of \[0, 1\], \[0, 255\]"):
        export.to_tflite(model, tmp_path / "m.tflite")


@pytest.mark.rows(
    (1, "sigmoid", 0), (3, "sigmoid", 0), (3, keras.layers.Softmax(), 0), (3, "softmax", 2)
)
def test_probabilities_are_those_of_the_head(units, activation, lora, core, tmp_path):
    head = keras.layers.Dense(units, activation=activation)
    model = sequential(keras.layers.Rescaling(2.0, -1.0), core, head)
    if lora:
        head.enable_lora(lora, lora_alpha=7)  # whose scale is another than 1
        head.lora_kernel_b.assign(keras.random.normal((lora, units), seed=5))
    expected = keras.ops.convert_to_numpy(model(SQUARES, training=False))
    if lora:
        module = hub.load(str(export.to_hub(model, tmp_path / "m")))
        np.testing.assert_allclose(served(module, SQUARES)["probabilities"], expected, atol=1e-5)
    file = export.to_tflite(model, tmp_path / "m.tflite", probabilities=True)
    np.testing.assert_allclose(run(file, SQUARES), expected, atol=1e-5)
    if units > 1 and activation == "sigmoid":
        softmax = export.to_tflite(model, tmp_path / "s.tflite", activation="softmax")
        assert interface_of(softmax)["activation"] == "softmax"


def test_functional_models_are_handed_over(core, tmp_path):
    inputs = keras.Input((40, 36, 3))
    x = keras.layers.Resizing(32, 32)(inputs) / 127.5 - 1.0
    seen = core(x, training=False)
    both = keras.layers.Concatenate()([seen, keras.layers.GlobalAveragePooling2D()(x)])
    model = with_head(keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(both)))
    expected = keras.ops.convert_to_numpy(model(PHOTOS * 255, training=False))
    module = handed_over(model, tmp_path)
    answer = served(module, PHOTOS)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    assert np.abs(answer["logits"] - expected).max() > 0.1
    # What the model itself is told comes before what the one inside knows.
    model.class_names, model.preprocessing = ["c", "d", "e"], "decode|resize_small(40)|value_range"
    told = supported_models.portable(model)
    linear = sequential(keras.layers.Rescaling(2.0, -1.0), core, keras.layers.Dense(3))
    linear.activation = "sigmoid"
    assert supported_models.portable(linear).activation == "sigmoid"
    assert (told.class_names, told.preprocessing) == (("c", "d", "e"), model.preprocessing)
    assert module.feature_vector(PHOTOS).shape == (4, 35)


def test_a_model_with_its_own_head_inside(make_vit, tmp_path):
    core = make_vit(num_layers=1, num_classes=3)
    model = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Rescaling(2.0, -1.0), core])
    found = run(export.to_tflite(model, tmp_path / "m.tflite"), SQUARES)
    np.testing.assert_allclose(found, core(SQUARES * 2 - 1, training=False), atol=1e-5)


def test_what_cannot_be_handed_over_is_said(core, make_vit, tmp_path):
    head, images = keras.layers.Dense(3), keras.Input((32, 32, 3))
    twice = keras.Model(images, head(core(images) - core(-images)))
    range_, foreign = r"bring images of .* to \[-1, 1\]", r"Expected one of .* that calls one"
    sizes = [keras.Input((None, None, 3)), keras.layers.Resizing(32, 32), core, head]

    def softmax(logits):
        return keras.ops.softmax(logits / 5)

    quantized = sequential(core, keras.layers.Dense(3, "softmax"))
    quantized.layers[-1].quantize("int8")
    contradicting = sequential(core, keras.layers.Dense(3, "sigmoid"))
    contradicting.activation = "softmax"
    for model, message in (
        (sequential(keras.layers.Rescaling(1 / 255), core, head), range_),
        (sequential(keras.layers.Rescaling(2.0, offset=-0.9), core, head), range_),
        (keras.Sequential(sizes), "Expected images of one size"),
        (sequential(core, head, keras.layers.ReLU()), "ends with a Dense layer"),
        (sequential(core, keras.layers.Dense(3, "relu")), "softmax or with sigmoid"),
        (sequential(core, keras.layers.Dense(3, softmax)), "softmax or with sigmoid"),
        (quantized, "quantize"),
        (contradicting, "sigmoid. Received: .*activation='softmax'"),
        (twice, "which calls it 2 times"),
        (sequential(keras.layers.Flatten(), keras.layers.Dense(3)), foreign),
        (make_vit(in_channels=1, num_layers=1), "in_channels=1"),
    ):
        with pytest.raises((ExportError, ValueError), match=message):
            export.to_hub(model, tmp_path / "m")
    assert not list(tmp_path.iterdir())
