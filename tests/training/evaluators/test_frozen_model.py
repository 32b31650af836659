"""Models are functions of images, from runs, files and modules, and known by their weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import export
import keras_vit
from training.evaluators import frozen_model


def images(size=16):
    return np.random.default_rng(0).uniform(-1, 1, (2, size, size, 3)).astype(np.float32)


def test_a_run_directory_and_its_model_file_are_the_same_model(vit, tmp_path):
    vit.save(tmp_path / "model.keras")
    by_run, by_file = (frozen_model.load_frozen(p) for p in (tmp_path, tmp_path / "model.keras"))
    assert by_run.identity == by_file.identity == frozen_model.freeze(vit, "").identity
    assert by_run.image_size == (16, 16) and by_run.image_range == (-1.0, 1.0)
    np.testing.assert_allclose(by_run.logits(images()), vit.predict_on_batch(images()), atol=1e-6)
    represent = keras.Model(vit.input, vit.endpoints["representation"])
    expected = represent.predict_on_batch(images())
    np.testing.assert_allclose(by_run.features(images()), expected, atol=1e-6)
    assert by_run.feature_name == "representation"


def test_identity_changes_with_weights_architecture_and_output(vit):
    before = frozen_model.freeze(vit, "").identity
    assert frozen_model.freeze(vit, "", layer="logits").identity != before
    vit.weights[0].assign_add(np.full(vit.weights[0].shape, 1e-3, np.float32))
    assert frozen_model.freeze(vit, "").identity != before

    arguments = {**vit.arguments, "layer_norm_epsilon": 1e-5}
    other = keras_vit.VisionTransformer(**arguments)
    other.set_weights(vit.get_weights())
    assert frozen_model.freeze(other, "").identity != frozen_model.freeze(vit, "").identity


def test_any_keras_model_gives_its_output_or_a_named_layer():
    model = keras.Sequential(
        [
            keras.Input((4, 4, 3)),
            keras.layers.Flatten(name="flat"),
            keras.layers.Dense(5, name="hidden"),
        ]
    )
    whole = frozen_model.freeze(model, "")
    assert whole.features(images(4)).shape == (2, 5) and whole.feature_name == "output"
    flat = frozen_model.freeze(model, "", layer="flat")
    np.testing.assert_allclose(flat.features(images(4)), images(4).reshape(2, -1))
    with pytest.raises(ValueError, match=r"flat, hidden.*Received: head"):
        frozen_model.freeze(model, "", layer="head")


def test_untrained_has_the_architecture_and_other_weights(vit, tmp_path):
    kernel = vit.get_layer("embedding").weights[0]
    kernel.assign(3 * kernel)
    vit.save(tmp_path / "m.keras")
    trained = frozen_model.load_frozen(tmp_path / "m.keras")
    fresh = frozen_model.untrained(tmp_path / "m.keras")
    assert fresh.features(images()).shape == trained.features(images()).shape
    assert np.abs(fresh.features(images()) - trained.features(images())).max() > 0.1
    assert (
        fresh.identity == frozen_model.untrained(tmp_path / "m.keras").identity != trained.identity
    )
    with pytest.raises(FileNotFoundError, match=r"run directory with model\.keras"):
        frozen_model.untrained(tmp_path)


def test_a_checkpoint_is_loaded_with_or_without_its_head(tmp_path):
    whole = keras_vit.create_model("ViT-Ti/32", num_classes=5, image_size=32)
    head = whole.get_layer("head").weights[0]
    head.assign(keras.random.normal(head.shape, seed=0))
    keras_vit.save_checkpoint(whole, tmp_path / "whole.npz")
    file, name = tmp_path / "whole.npz", "ViT-Ti/32"
    loaded = frozen_model.load_frozen(file, name=name, num_classes=5, image_size=32)
    expected = whole.predict_on_batch(images(32))
    np.testing.assert_allclose(loaded.logits(images(32)), expected, rtol=1e-5, atol=1e-5)
    features = frozen_model.load_frozen(file, name=name, image_size=32)
    assert features.features(images(32)).shape == (2, 192)
    assert features.name == str(tmp_path / "whole.npz")


@pytest.fixture
def module(tmp_path):
    """The directory of a module that sums images and has a feature vector."""
    root = tf.train.Checkpoint()
    root.feature_vector = tf.train.Checkpoint()
    spec = tf.TensorSpec((None, 8, 6, 3), tf.float32)
    for node, function in (
        (root, lambda x: tf.reduce_sum(x, axis=(1, 2))),
        (root.feature_vector, lambda x: tf.reduce_max(x, axis=(1, 2))),
    ):
        node.__call__ = tf.function(function, input_signature=[spec])
    tf.saved_model.save(root, str(tmp_path / "module"))
    return tmp_path / "module"


def test_a_hub_module_gives_its_feature_vector(module):
    loaded = frozen_model.load_frozen(module)
    x = np.random.default_rng(0).uniform(0, 1, (2, 8, 6, 3)).astype(np.float32)
    np.testing.assert_allclose(loaded.logits(x), x.sum((1, 2)), rtol=1e-6)
    np.testing.assert_allclose(loaded.features(x), x.max((1, 2)))
    assert loaded.feature_name == "feature_vector"
    assert loaded.image_size == (8, 6) and loaded.image_range == (0.0, 1.0)
    output = frozen_model.load_frozen(module, layer="output")
    np.testing.assert_allclose(output.features(x), x.sum((1, 2)), rtol=1e-6)
    assert output.identity != loaded.identity


def test_an_exported_module_gives_the_features_of_its_model(vit, tmp_path):
    export.to_hub(vit, tmp_path / "module")
    exported = frozen_model.load_frozen(tmp_path / "module")
    original = frozen_model.freeze(vit, "")
    assert exported.image_size == original.image_size
    in_its_range = (images() + 1) / 2
    for ours, theirs in (
        (original.features, exported.features),
        (original.logits, exported.logits),
    ):
        np.testing.assert_allclose(theirs(in_its_range), ours(images()), atol=1e-5)


def test_what_is_not_a_model_is_refused(module, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run directory with model\.keras"):
        frozen_model.load_frozen(tmp_path)
    with pytest.raises(ValueError, match="callable attribute"):
        frozen_model.load_frozen(module, layer="tokens")
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    with pytest.raises(ValueError, match="can be called on images"):
        frozen_model.load_frozen(tmp_path / "empty")
