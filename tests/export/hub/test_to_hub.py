import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from PIL import Image

import keras_vit
from keras_vit import export
from keras_vit.photos import prepare_photo
from keras_vit.training.evaluators.exported_files import labels_of
from tests.export.conftest import LABELS, answer


@pytest.fixture(scope="module")
def model(make_vit):
    model = make_vit(dropout_rate=0.2, representation_size=24)
    model.get_layer("head").kernel.regularizer = keras.regularizers.L2(0.5)
    return model


@pytest.fixture(scope="module")
def directory(model, tmp_path_factory):
    return export.to_hub(model, tmp_path_factory.mktemp("hub") / "module", labels=LABELS)


@pytest.fixture(scope="module")
def module(directory):
    return hub.load(str(directory))


def test_calls_equal_keras_for_every_batch_size(model, module, images):
    for size in (1, 3, 8):
        np.testing.assert_allclose(module(images[:size]), answer(model, images[:size]), atol=1e-5)


def test_feature_vector_is_the_representation_on_the_same_variables(model, module, images):
    np.testing.assert_allclose(
        module.feature_vector(images), answer(model, images, "representation"), atol=1e-5
    )
    shared = {id(v) for v in module.variables}
    assert {id(v) for v in module.feature_vector.variables} < shared
    assert len(module.trainable_variables) - len(module.feature_vector.trainable_variables) == 2


def test_endpoints_have_every_intermediate_result(model, module, images):
    results = module.endpoints(images)
    attention = {f"block_{i:02d}/attention" for i in range(2)}
    assert set(results) == set(model.endpoints) | attention
    for name in model.endpoints:
        np.testing.assert_allclose(results[name], answer(model, images, name), atol=1e-5)
    maps = keras_vit.attention_maps(model, images * 2 - 1)
    for index in range(2):
        np.testing.assert_allclose(results[f"block_{index:02d}/attention"], maps[index], atol=1e-5)


def test_training_applies_dropout_and_inference_does_not(module, images):
    np.testing.assert_array_equal(module(images, training=False), module(images))
    first, second = module(images, training=True), module(images, training=True)
    assert np.abs(first - module(images)).max() > 1e-2
    assert np.abs(first - second).max() > 1e-2


def test_labels_are_an_asset(module, directory):
    assert module.labels.asset_path.numpy().decode() == str(directory / "assets/labels.txt")
    assert labels_of(directory) == LABELS


def test_variables_and_regularization_losses(model, module):
    assert len(module.trainable_variables) == len(model.weights)
    assert len(module.variables) > len(module.trainable_variables)  # the dropouts' seeds
    kernel = model.get_layer("head").kernel
    (loss,) = module.regularization_losses
    assert float(loss()) == pytest.approx(0.5 * float((kernel.numpy() ** 2).sum()), rel=1e-5)


def test_every_weight_is_stored_once_in_float32(directory, model):
    """Keras's own export stores each of them twice."""
    stored = tf.train.load_checkpoint(str(directory / "variables/variables"))
    types = stored.get_variable_to_dtype_map()
    shapes = [
        shape
        for name, shape in stored.get_variable_to_shape_map().items()
        if types[name] == tf.float32
    ]
    assert sorted(map(tuple, shapes)) == sorted(tuple(w.shape) for w in model.weights)


def test_signatures_take_floats_integers_and_files(model, module, images):
    logits = answer(model, images)
    answers = module.signatures["serving_default"](images=tf.constant(images))
    np.testing.assert_allclose(answers["logits"], logits, atol=1e-5)
    np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(logits), atol=1e-5)

    with pytest.raises(tf.errors.InvalidArgumentError, match="divide by 255"):
        module.signatures["serving_default"](images=tf.constant(images * 255))

    pixels = np.round(images * 255).astype("uint8")
    logits = answer(model, pixels / np.float32(255))
    answers = module.signatures["serving_uint8"](images=tf.constant(pixels))
    np.testing.assert_allclose(answers["logits"], logits, atol=1e-5)

    files = tf.stack([tf.io.encode_png(image) for image in pixels])
    answers = module.signatures["serving_bytes"](image_bytes=files)
    np.testing.assert_allclose(answers["logits"], logits, atol=1e-5)


def test_bytes_of_another_size_are_resized(model, module):
    image = np.random.default_rng(2).integers(0, 256, (50, 41, 3)).astype("uint8")
    resized = tf.image.resize(image / np.float32(255), (32, 32))
    answers = module.signatures["serving_bytes"](image_bytes=tf.io.encode_png(image)[None])
    np.testing.assert_allclose(answers["logits"], answer(model, resized[None]), atol=1e-5)


@pytest.mark.long
def test_encoded_photos_are_prepared_as_the_model_wants(make_vit, tmp_path):
    model = make_vit()
    model.preprocessing = "decode|resize_small(40)|central_crop(32)|value_range(-1, 1)"
    path = export.to_hub(model, tmp_path / "m")
    # One that was taken sideways.
    pixels = np.random.default_rng(2).integers(0, 256, (50, 41, 3)).astype("uint8")
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.fromarray(pixels).save(tmp_path / "photo.png", exif=exif)
    answers = hub.load(str(path)).signatures["serving_bytes"](
        image_bytes=tf.constant([(tmp_path / "photo.png").read_bytes()])
    )
    prepared = prepare_photo(np.rot90(pixels), model.preprocessing)[None]
    logits = keras.ops.convert_to_numpy(model(prepared, training=False))
    np.testing.assert_allclose(answers["logits"], logits, atol=1e-4)


@pytest.fixture(scope="module")
def any_module(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "any"
    return hub.load(str(export.to_hub(model, path, resolution="any")))


def test_any_resolution_interpolates_positions_with_corners_aligned(model, any_module, images):
    np.testing.assert_allclose(any_module(images), answer(model, images), atol=1e-5)
    other = np.random.default_rng(3).uniform(0, 1, (2, 56, 27, 3)).astype("float32")
    reference = model.any_resolution()(other * 2 - 1)
    np.testing.assert_allclose(any_module(other), reference, atol=1e-5)
    attention = any_module.endpoints(other)["block_01/attention"]
    assert attention.shape == (2, 2, 1 + 7 * 3, 1 + 7 * 3)
    np.testing.assert_allclose(tf.reduce_sum(attention, -1), 1, atol=1e-5)


def test_any_resolution_is_refused_where_the_weights_know_the_grid(make_vit, tmp_path):
    axial = make_vit(attention="axial", classifier="gap", num_layers=1)
    with pytest.raises(ValueError, match="Axial attention"):
        export.to_hub(axial, tmp_path / "m", resolution="any")
    relative = make_vit(position_embedding="relative", num_layers=1)
    with pytest.raises(ValueError, match="Relative positions"):
        export.to_hub(relative, tmp_path / "m", resolution="any")
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_head_gives_its_representation(make_vit, images, tmp_path):
    model = make_vit(num_classes=None, classifier="map", num_layers=1)
    module = hub.load(str(export.to_hub(model, tmp_path / "m")))
    np.testing.assert_allclose(module(images), answer(model, images), atol=1e-5)
    answers = module.signatures["serving_default"](images=tf.constant(images))
    assert set(answers) == {"representation"}
    assert not hasattr(module, "feature_vector")
    with pytest.raises(ValueError, match="no head"):
        export.to_hub(model, tmp_path / "n", output="logits")


def test_a_feature_vector_module_has_no_head(model, images, tmp_path):
    module = hub.load(str(export.to_hub(model, tmp_path / "m", output="representation")))
    np.testing.assert_allclose(module(images), answer(model, images, "representation"), atol=1e-5)
    assert len(module.trainable_variables) == len(model.weights) - 2


@pytest.mark.parametrize("arguments", [{}, {"dtype": "bfloat16", "remat": True}])
def test_frozen_low_precision_and_rematerialized_models_can_be_trained(
    make_vit, images, tmp_path, arguments
):
    model, same = make_vit(num_layers=1, **arguments), make_vit(num_layers=1)
    for layer in model.layers:
        layer.trainable = layer.name == "head"
    module = hub.load(str(export.to_hub(model, tmp_path / "m")))
    assert {v.dtype for v in module.trainable_variables} == {tf.float32}
    assert len(module.trainable_variables) == len(model.weights) > len(model.trainable_weights)
    for source, target in zip(model.weights, same.weights, strict=True):
        target.assign(keras.ops.cast(source, "float32"))
    np.testing.assert_allclose(module(images), answer(same, images), atol=1e-5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(module(images, training=True) ** 2)
    assert None not in tape.gradient(loss, module.trainable_variables)


def test_folders_of_something_else_are_not_replaced(model, tmp_path):
    (tmp_path / "chapter.tex").write_text("…")
    with pytest.raises(FileExistsError, match="something else"):
        export.to_hub(model, tmp_path)
    assert (tmp_path / "chapter.tex").read_text() == "…"
