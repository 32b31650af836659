import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import export
from keras_vit.training.inference.image_function import KerasFunction
from keras_vit.training.inference.open_model import open_source, untrained
from tests.tiny_vit import tiny_vit


def images(size=16):
    return np.random.default_rng(0).uniform(-1, 1, (2, size, size, 3)).astype(np.float32)


def test_a_run_its_model_file_and_the_same_untrained(vit, tmp_path):
    vit.save(tmp_path / "model.keras")
    by_run = open_source(tmp_path)
    by_file = open_source(tmp_path / "model.keras")
    assert by_run.identity == by_file.identity == KerasFunction(vit, "").identity
    assert by_run.interface.image_size == (16, 16) and by_run.interface.image_range == (-1.0, 1.0)
    np.testing.assert_allclose(by_run(images()), vit.predict_on_batch(images()), atol=1e-6)
    expected = keras.Model(vit.input, vit.endpoints["representation"]).predict_on_batch(images())
    np.testing.assert_allclose(by_run.features(images()), expected, atol=1e-6)
    assert by_run.feature_name == "representation"
    fresh, again = (untrained(tmp_path / "model.keras") for _ in range(2))
    assert np.abs(fresh.features(images()) - expected).max() > 0.1
    assert fresh.identity == again.identity != by_run.identity


def test_identity_changes_with_weights_architecture_and_output(vit):
    def identity(model, **settings):
        return KerasFunction(model, "", **settings).identity

    other = keras_vit.VisionTransformer(**{**vit.arguments, "layer_norm_epsilon": 1e-5})
    other.set_weights(vit.get_weights())
    found = [identity(vit), identity(vit, layer="logits"), identity(other)]
    vit.weights[0].assign_add(np.full(vit.weights[0].shape, 1e-3, np.float32))
    assert len({*found, identity(vit)}) == 4


def test_any_keras_model_gives_its_output_or_a_named_layer():
    layers = [keras.layers.Flatten(name="flat"), keras.layers.Dense(5, name="hidden")]
    model = keras.Sequential([keras.Input((4, 4, 3)), *layers])
    whole = KerasFunction(model, "")
    assert whole.features(images(4)).shape == (2, 5) and whole.feature_name == "output"
    flat = KerasFunction(model, "", layer="flat")
    np.testing.assert_allclose(flat.features(images(4)), images(4).reshape(2, -1))
    with pytest.raises(ValueError, match=r"flat, hidden.*Received: head"):
        KerasFunction(model, "", layer="head")


@pytest.mark.parametrize("core", ["model", "features", "another's"])
def test_another_model_than_ours_is_exported_first(vit, core, tmp_path):
    inner = {"model": vit, "features": keras.Model(vit.input, vit.endpoints["representation"])}
    inner["another's"] = keras.layers.Flatten()
    scaled = keras.Sequential([keras.layers.Rescaling(1 / 127.5, -1), inner[core]])
    whole = keras.Sequential([keras.Input((16, 16, 3)), scaled, keras.layers.Dense(4, "softmax")])
    whole.save(tmp_path / "around.keras")
    with pytest.raises(ValueError, match=r"around\.keras, another model of Keras\. If it calls"):
        open_source(tmp_path / "around.keras")


def test_a_hub_module_gives_its_feature_vector_and_what_is_no_model_is_refused(tmp_path):
    root, module, spec = tf.Module(), tmp_path / "module", tf.TensorSpec((None, 8, 6, 3))
    x = np.random.default_rng(0).uniform(0, 1, (2, 8, 6, 3)).astype(np.float32)
    for function, said in (
        (lambda x: {"a": x}, r"one output\. Received: one that gives \['a'\]"),
        (lambda x: x[:1], r"each of 2 images\. .* float32 of shape \(1, 8, 6, 3\)"),
        (tf.strings.as_string, "which gives object of shape"),
    ):
        root.__call__ = tf.function(function, input_signature=[spec])
        tf.saved_model.save(root, str(module))
        with pytest.raises(ValueError, match=said):
            open_source(module)(x)
    root.feature_vector = tf.Module()
    for node, function in (
        (root, lambda x: tf.reduce_sum(x, axis=(1, 2))),
        (root.feature_vector, lambda x: tf.reduce_max(x, axis=(1, 2))),
    ):
        node.__call__ = tf.function(function, input_signature=[spec])
    tf.saved_model.save(root, str(module))
    loaded = open_source(module)
    np.testing.assert_allclose(loaded(x), x.sum((1, 2)), rtol=1e-6)
    np.testing.assert_allclose(loaded.features(x), x.max((1, 2)))
    assert loaded.feature_name == "feature_vector"
    assert loaded.interface.image_size == (8, 6) and loaded.interface.image_range == (0.0, 1.0)
    output = open_source(module, layer="output")
    np.testing.assert_allclose(output.features(x), x.sum((1, 2)), rtol=1e-6)
    identities, labels = {output.identity, loaded.identity}, module / "assets" / "labels.txt"
    labels.parent.mkdir(exist_ok=True)
    for name, text in (("labels.txt", "crow"), ("labels.txt", "owl"), ("names.txt", "owl")):
        labels = labels.rename(labels.with_name(name)) if labels.exists() else labels
        labels.write_text(text)
        identities.add(open_source(module).identity)
    assert len(identities) == 5
    with pytest.raises(ValueError, match="callable attribute"):
        open_source(module, layer="tokens")
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    with pytest.raises(ValueError, match="can be called on images"):
        open_source(tmp_path / "empty")
    for content in (b"", b"no module"):
        (module / "saved_model.pb").write_bytes(content)
        with pytest.raises(ValueError, match=r"loaded as a TF-Hub module: .*Export the model agai"):
            open_source(module)


def test_a_tflite_file_gives_its_feature_vector(tmp_path):
    model = tiny_vit(image_size=8, num_classes=3, num_layers=1)
    x = np.random.default_rng(0).uniform(0, 1, (2, 8, 8, 3)).astype(np.float32)
    file = export.to_tflite(model, tmp_path / "m.tflite", feature_vector=True)
    loaded = open_source(file)
    expected = keras.Model(model.input, model.endpoints["representation"])(x * 2 - 1)
    np.testing.assert_allclose(loaded.features(x), expected, atol=1e-5)
    assert loaded.feature_name == "representation"
    without = export.to_tflite(model, tmp_path / "n.tflite", probabilities=True)
    loaded = open_source(without)
    assert loaded.interface.output == "probabilities" and loaded.interface.applied == "none"
    with pytest.raises(ValueError, match="Expected a file with the signature feature_vector"):
        loaded.features(x)
    # LiteRT would enlarge its graph.
    with pytest.raises(ValueError, match=r"of shape \(n, 8, 8, 3\).*Received: \(2, 9, 8, 3\)"):
        loaded(np.zeros((2, 9, 8, 3)))
