"""One exported module in everything that fine-tunes or serves TF2 modules."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from keras_vit import export
from keras_vit.export.hub import archives
from keras_vit.export.verification.browser import served
from tests.export.conftest import answer

CLASSES = 5


@pytest.fixture(scope="module")
def model(make_vit):
    model = make_vit(num_layers=1, dropout_rate=0.1)
    model.get_layer("head").kernel.regularizer = keras.regularizers.L2(0.5)
    return model


@pytest.fixture(scope="module")
def directory(model, tmp_path_factory):
    return export.to_hub(model, tmp_path_factory.mktemp("consumers") / "module")


@pytest.fixture(scope="module")
def logits(model, images):
    return answer(model, images)


@pytest.fixture(scope="module")
def targets(images):
    return np.eye(CLASSES, dtype="float32")[np.arange(len(images)) % CLASSES]


def changed(before, variables):
    return sum(np.any(a != b.numpy()) for a, b in zip(before, variables, strict=True))


def test_hub_load_with_a_gradient_tape(model, directory, images, logits, targets):
    module = hub.load(str(directory))
    np.testing.assert_allclose(module(images), logits, atol=1e-5)
    losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            result = module(images, training=True)
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, result))
            loss += 1e-3 * tf.add_n([term() for term in module.regularization_losses])
        gradients = tape.gradient(loss, module.trainable_variables)
        assert len(gradients) == len(model.weights) and None not in gradients
        for variable, gradient in zip(module.trainable_variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        losses.append(float(loss))
    assert losses[-1] < 0.8 * losses[0]


def test_keras_layer_of_keras_2(model, directory, images, logits, targets):
    import tf_keras

    layer = hub.KerasLayer(str(directory), trainable=True)
    classifier = tf_keras.Sequential([tf_keras.Input((32, 32, 3)), layer])
    np.testing.assert_allclose(classifier.predict(images, verbose=0), logits, atol=1e-5)
    assert len(layer.losses) == 1
    before = [v.numpy() for v in layer.trainable_variables]
    assert len(before) == len(model.weights)
    classifier.compile("adam", tf_keras.losses.CategoricalCrossentropy(from_logits=True))
    history = classifier.fit(images, targets, epochs=4, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert changed(before, layer.trainable_variables) == len(before)

    features = hub.KerasLayer(hub.load(str(directory)).feature_vector, trainable=True)
    classifier = tf_keras.Sequential([features, tf_keras.layers.Dense(3)])
    classifier.build((None, 32, 32, 3))
    assert len(classifier.trainable_variables) == len(model.weights)  # another head
    assert classifier(images).shape == (8, 3)


def test_tfsm_layer_of_keras_3(directory, images, logits):
    layer = keras.layers.TFSMLayer(
        str(directory), call_endpoint="serve", call_training_endpoint="serve_train"
    )
    np.testing.assert_allclose(layer(images), logits, atol=1e-5)
    assert np.abs(layer(images, training=True) - logits).max() > 1e-3


@pytest.fixture(scope="module")
def make_classifier(directory):
    def make():
        layer = export.HubLayer(directory)
        return layer, keras.Sequential([keras.Input((32, 32, 3)), layer])

    return make


@pytest.mark.long
def test_hub_layer_trains_with_adamw(model, make_classifier, images, logits, targets, tmp_path):
    layer, classifier = make_classifier()
    np.testing.assert_allclose(classifier(images), logits, atol=1e-5)
    kernel = model.get_layer("head").kernel.numpy()
    assert float(classifier.losses[0]) == pytest.approx(0.5 * (kernel**2).sum(), rel=1e-5)
    before = [v.numpy() for v in layer.trainable_variables]
    assert len(before) == len(model.weights)
    classifier.compile(
        keras.optimizers.AdamW(3e-3), keras.losses.CategoricalCrossentropy(from_logits=True)
    )
    history = classifier.fit(images, targets, epochs=6, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert changed(before, layer.trainable_variables) == len(before)
    # The module's own variables moved, and so did its output.
    assert np.abs(classifier(images) - logits).max() > 1e-2

    classifier.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(images), classifier(images))


def test_hub_layer_frozen_trains_nothing_and_drops_nothing(make_classifier, images, logits):
    layer, classifier = make_classifier()
    layer.trainable = False
    np.testing.assert_allclose(classifier(images, training=True), logits, atol=1e-5)
    assert classifier.trainable_variables == [] and classifier.losses == []


def test_hub_layer_computes_in_float32_beside_layers_of_mixed_precision(
    directory, images, logits, tmp_path
):
    layers = [keras.layers.Rescaling(1.0, dtype="mixed_bfloat16")]
    layers += [export.HubLayer(directory, dtype="mixed_bfloat16")]
    for of_layers in (layers[1:], layers):
        model = keras.Sequential([keras.Input((32, 32, 3)), *of_layers])
        exact = len(of_layers) == 1
        np.testing.assert_allclose(model(images), logits, atol=1e-5 if exact else 0.1)
        model.save(tmp_path / "m.keras")
        loaded = keras.saving.load_model(tmp_path / "m.keras")
        np.testing.assert_array_equal(loaded(images), model(images))


def test_hub_layer_refuses_what_cannot_be_called(tmp_path):
    tf.saved_model.save(tf.train.Checkpoint(variables=[tf.Variable(1.0)]), str(tmp_path / "m"))
    with pytest.raises(ValueError, match="reusable SavedModel"):
        export.HubLayer(tmp_path / "m")


def test_tf1_graphs_as_vtab_builds_them(model, directory, images, logits, targets):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        inputs = v1.placeholder(tf.float32, (None, 32, 32, 3))
        module = hub.load(str(directory))
        variables = v1.get_collection_ref(v1.GraphKeys.TRAINABLE_VARIABLES)
        variables.extend(module.trainable_variables)
        assert len(variables) == len(model.weights)
        inference, result = module(inputs, training=False), module(inputs, training=True)
        assert result.shape.as_list() == [None, CLASSES]  # its head wants rank 2
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, result))
        step = v1.train.MomentumOptimizer(0.03, 0.9).minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            feed = {inputs: images}
            np.testing.assert_allclose(session.run(inference, feed), logits, atol=1e-5)
            first, before = session.run([loss, list(variables)], feed)
            for _ in range(6):
                session.run(step, feed)
            last, after = session.run([loss, list(variables)], feed)
    assert last < first
    moved = sum(np.any(a != b) for a, b in zip(before, after, strict=True))
    assert moved >= len(before) - 1  # the bias of the keys cancels in the softmax


def test_xla_compiles_forward_and_backward(directory, images, logits, targets):
    module = hub.load(str(directory))

    @tf.function(jit_compile=True)
    def gradients(images):
        with tf.GradientTape() as tape:
            result = module(images, training=False)
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, result))
        return result, tape.gradient(loss, module.trainable_variables)

    result, compiled = gradients(images)
    np.testing.assert_allclose(result, logits, atol=1e-5)
    with tf.GradientTape() as tape:
        result = module(images, training=False)
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, result))
    eager = tape.gradient(loss, module.trainable_variables)
    for a, b in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_an_archive_over_http(directory, images, logits, tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    archives.pack(directory, tmp_path / "site/publisher/digits/1")
    with served(tmp_path / "site") as address:
        module = hub.load(f"{address}publisher/digits/1")
    np.testing.assert_allclose(module(images), logits, atol=1e-5)


MIRRORED = """
import sys
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import tensorflow_hub as hub
import tf_keras

directory, file = sys.argv[1:]
data = np.load(file)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
with strategy.scope():
    layer = hub.KerasLayer(directory, trainable=True)
    model = tf_keras.Sequential([tf_keras.Input((32, 32, 3)), layer])
    model.compile("adam", tf_keras.losses.CategoricalCrossentropy(from_logits=True))
np.testing.assert_allclose(model.predict(data["images"], verbose=0), data["logits"], atol=1e-5)
before = [v.numpy() for v in layer.trainable_variables]
history = model.fit(data["images"], data["targets"], epochs=4, verbose=0).history["loss"]
after = [v.numpy() for v in layer.trainable_variables]
moved = sum(np.any(a != b) for a, b in zip(before, after))
print("moved", moved, "of", len(before), "fell", history[-1] < history[0])
"""


@pytest.mark.long
def test_mirrored_strategy_on_two_devices(model, directory, images, logits, targets, tmp_path):
    np.savez(tmp_path / "data.npz", images=images, logits=logits, targets=targets)
    command = [sys.executable, "-c", MIRRORED, str(directory), str(tmp_path / "data.npz")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    count = len(model.weights)
    assert result.stdout.splitlines()[-1] == f"moved {count} of {count} fell True"
