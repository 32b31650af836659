"""A user's model around one of ours, Sequential or functional, goes through the exporters."""

import keras
import numpy as np
import pytest
import tensorflow_hub as hub

from keras_vit import export
from keras_vit.export.__main__ import main
from keras_vit.export.errors import ExportError
from keras_vit.training.evaluators.exported_files import interface_of
from tests.export.conftest import run


@pytest.fixture(scope="module")
def core(make_vit):
    return make_vit(num_classes=None, num_layers=1)


def sequential(*layers, size=(40, 36, 3)):
    model = keras.Sequential([keras.Input(size), *layers])
    for weight in model.layers[-1].weights:
        weight.assign(keras.random.normal(weight.shape, seed=3))
    return model


def users_model(core):
    keras.utils.set_random_seed(0)
    return sequential(
        keras.layers.RandomFlip("horizontal"),
        keras.layers.Resizing(32, 32),
        keras.layers.Rescaling(1 / 127.5, offset=-1),
        core,
        keras.layers.Dropout(0.5),
        keras.layers.Dense(3),
    )


@pytest.fixture(scope="module")
def photos():
    """(4, 40, 36, 3) float32 in [0, 1]."""
    return np.random.default_rng(0).uniform(0, 1, (4, 40, 36, 3)).astype("float32")


def handed_over(model, photos, directory):
    """Exports a model as a module and a file, verifies both, and returns the module, loaded."""
    module = export.to_hub(model, directory / "m", labels=["a", "b", "c"])
    for path in (module, export.to_tflite(model, directory / "m.tflite")):
        report = export.verify(model, path, photos, costs=False)
        assert report.ok, str(report)
    return hub.load(str(module))


def test_everything_before_and_after_is_handed_over(core, photos, tmp_path):
    model = users_model(core)
    module = handed_over(model, photos, tmp_path)
    expected = keras.ops.convert_to_numpy(model(photos * 255, training=False))
    np.testing.assert_allclose(module(photos), expected, atol=1e-4)
    assert module.feature_vector(photos).shape == (4, 32)
    # The module trains: the model inside, and the head.
    assert len(module.trainable_variables) == len(core.weights) + 2


@pytest.mark.parametrize(
    "rescaling, low, high", [((2.0, -1.0), 0, 1), ((1 / 127.5, -1.0), 0, 255), (None, -1, 1)]
)
def test_the_range_of_images_is_found(core, photos, tmp_path, rescaling, low, high):
    before = [keras.layers.Rescaling(rescaling[0], offset=rescaling[1])] if rescaling else []
    model = sequential(*before, core, keras.layers.Dense(3), size=(32, 32, 3))
    images = photos[:, :32, :32]
    expected = keras.ops.convert_to_numpy(model(images * (high - low) + low, training=False))
    module = hub.load(str(export.to_hub(model, tmp_path / "m")))
    np.testing.assert_allclose(module(images), expected, atol=1e-4)


@pytest.mark.parametrize("units", [1, 3])
def test_probabilities_are_those_of_the_head(core, photos, tmp_path, units):
    head = keras.layers.Dense(units, activation="sigmoid")
    model = sequential(keras.layers.Rescaling(2.0, -1.0), core, head, size=(32, 32, 3))
    images = photos[:, :32, :32]
    expected = keras.ops.convert_to_numpy(model(images, training=False))
    module = hub.load(str(export.to_hub(model, tmp_path / "m")))
    answer = module.signatures["serving_default"](images=keras.ops.convert_to_tensor(images))
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    file = export.to_tflite(model, tmp_path / "m.tflite", probabilities=True)
    np.testing.assert_allclose(run(file, images), expected, atol=1e-5)
    softmax = export.to_hub(model, tmp_path / "s", activation="softmax")
    assert interface_of(softmax)["activation"] == "softmax"


def test_a_saved_one_on_the_command_line(core, photos, tmp_path, capsys):
    users_model(core).save(tmp_path / "m.keras")
    np.savez(tmp_path / "photos.npz", images=photos)
    source, file = tmp_path / "m.keras", tmp_path / "m.tflite"
    options = [f"--output={file}", f"--dataset={tmp_path / 'photos.npz'}", "--quantization=none"]
    assert main(["tflite", str(source), *options]) == 0
    assert "good" in capsys.readouterr().out


def test_functional_models_are_handed_over(core, photos, tmp_path):
    inputs = keras.Input((40, 36, 3))
    x = keras.layers.Resizing(32, 32)(inputs) / 127.5 - 1.0
    seen = core(x, training=False)
    both = keras.layers.Concatenate()([seen, keras.layers.GlobalAveragePooling2D()(x)])
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(both))
    keras.utils.set_random_seed(0)
    for weight in model.layers[-1].weights:
        weight.assign(keras.random.normal(weight.shape, seed=3))
    expected = keras.ops.convert_to_numpy(model(photos * 255, training=False))
    module = handed_over(model, photos, tmp_path)
    answer = module.signatures["serving_default"](images=keras.ops.convert_to_tensor(photos))
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    assert np.abs(answer["logits"] - expected).max() > 0.1
    assert module.feature_vector(photos).shape == (4, 35)


def test_a_model_with_its_own_head_inside(make_vit, photos, tmp_path):
    core = make_vit(num_layers=1, num_classes=3)
    core.class_names = ["a", "b", "c"]
    inputs = keras.Input((32, 32, 3))
    model = keras.Model(inputs, core(keras.layers.Rescaling(2.0, offset=-1.0)(inputs)))
    images = photos[:, :32, :32]
    module = hub.load(str(export.to_hub(model, tmp_path / "m")))
    np.testing.assert_allclose(module(images), core(images * 2 - 1, training=False), atol=1e-5)


def test_what_cannot_be_handed_over_is_said(core, make_vit, tmp_path):
    wrong_range = sequential(
        keras.layers.Rescaling(1 / 255), core, keras.layers.Dense(3), size=(32, 32, 3)
    )
    nearly = sequential(
        keras.layers.Rescaling(2.0, offset=-0.9), core, keras.layers.Dense(3), size=(32, 32, 3)
    )
    any_size = keras.Sequential(
        [keras.Input((None, None, 3)), keras.layers.Resizing(32, 32), core, keras.layers.Dense(3)]
    )
    no_head = sequential(core, keras.layers.Dense(3), keras.layers.ReLU(), size=(32, 32, 3))
    relu = sequential(core, keras.layers.Dense(3, activation="relu"), size=(32, 32, 3))
    images = keras.Input((32, 32, 3))
    twice = keras.Model(images, keras.layers.Dense(3)(core(images) - core(-images)))
    foreign = sequential(keras.layers.Flatten(), keras.layers.Dense(3), size=(32, 32, 3))
    for model, message in (
        (wrong_range, r"bring images of .* to \[-1, 1\]"),
        (nearly, r"bring images of .* to \[-1, 1\]"),
        (any_size, "Expected images of one size"),
        (no_head, "ends with a Dense layer"),
        (relu, "with softmax or with sigmoid"),
        (twice, "which calls it 2 times"),
        (foreign, r"Expected one of .* or a model of Keras that calls one"),
    ):
        with pytest.raises(ExportError, match=message):
            export.to_hub(model, tmp_path / "m")
    assert not list(tmp_path.iterdir())
