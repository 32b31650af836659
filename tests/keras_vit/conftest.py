"""Small models and gradients on every backend."""

import keras
import numpy as np
import pytest

import keras_vit
from tests.tiny_vit import tiny_vit

if keras.backend.backend() == "jax":
    import jax

    # These tests compile far longer than they compute.
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def few_steps():
    """Arguments of `compile` for so few steps that tracing a graph would take longer."""
    eagerly = keras.backend.backend() == "tensorflow"
    return {"run_eagerly": True} if eagerly else {"jit_compile": False}


def randomize(model, seed=0):
    """Gives every weight a value, so that no branch is silenced by a zero initialization."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        fan_in = np.prod(weight.shape[:-1]) if len(weight.shape) > 1 else 10
        value = rng.standard_normal(weight.shape) / np.sqrt(fan_in)
        positive = weight.name == "moving_variance"
        weight.assign(np.abs(value) + 0.5 if positive else value + (weight.name == "gamma"))
    return model


@pytest.fixture(scope="session")
def randomized():
    """Returns a function that builds a layer for a shape and gives it random weights."""

    def build(layer, shape):
        layer.build(shape)
        return randomize(layer)

    return build


@pytest.fixture(scope="session")
def make_vit():
    """Returns a function that builds a small Vision Transformer with random weights."""

    def make(seed=0, **overrides):
        return randomize(tiny_vit(**overrides), seed)

    return make


@pytest.fixture(scope="session")
def make_resnet():
    """Returns a function that builds a small BiT ResNet with random weights."""

    def make(seed=0, **overrides):
        arguments = {
            "num_layers": (1, 2),
            "width_factor": 0.5,
            "num_classes": 5,
            "image_size": 32,
            **overrides,
        }
        return randomize(keras_vit.ResNetV2(**arguments), seed)

    return make


@pytest.fixture(scope="session")
def make_axial_resnet():
    """Returns a function that builds an AxialResNet of two stages with random weights."""

    def make(**overrides):
        arguments = {"num_layers": (1, 2), "num_classes": 5, **overrides}
        return randomize(keras_vit.AxialResNet(width_factor=0.25, num_groups=2, **arguments))

    return make


@pytest.fixture(scope="session")
def random_images():
    """Returns a function of (batch, height, width) to images in [-1, 1]."""

    def images(batch=3, height=16, width=16, seed=1):
        rng = np.random.default_rng(seed)
        return rng.uniform(-1, 1, (batch, height, width, 3)).astype("float32")

    return images


@pytest.fixture(scope="session")
def to_numpy():
    return keras.ops.convert_to_numpy


@pytest.fixture(scope="session")
def forward():
    """Returns a function of (model, inputs) to outputs as NumPy arrays, without training."""

    def compute(model, inputs):
        if keras.backend.backend() == "jax":
            # One compilation of the whole instead of one of every operation.
            import jax

            values = [v.value for v in model.trainable_variables]
            state = [v.value for v in model.non_trainable_variables]
            outputs, _ = jax.jit(model.stateless_call)(values, state, inputs)
        else:
            outputs = model(inputs, training=False)
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

    return compute


@pytest.fixture(scope="session")
def gradients():
    """Returns a function of (model, images, training) to {weight's path: gradient}.

    The loss is the mean of the squared outputs.
    """

    def compute(model, images, training=False):
        variables = model.trainable_variables
        if keras.backend.backend() == "jax":
            import jax

            def loss(values):
                state = [v.value for v in model.non_trainable_variables]
                outputs, _ = model.stateless_call(values, state, images, training=training)
                return keras.ops.mean(outputs * outputs)

            results = jax.jit(jax.grad(loss))([v.value for v in variables])
        else:
            import tensorflow as tf

            with tf.GradientTape() as tape:
                outputs = model(images, training=training)
                loss = keras.ops.mean(outputs * outputs)
            results = tape.gradient(loss, variables)
        return {
            v.path: keras.ops.convert_to_numpy(g)
            for v, g in zip(variables, results, strict=True)
            if g is not None
        }

    return compute


@pytest.fixture(scope="session")
def assert_logits(golden, forward):
    """Returns a function that compares a model's logits with those of a golden case."""

    def check(model, case):
        expected = np.array(case["logits"])
        difference = forward(model, golden.images_of(case)) - expected
        assert np.abs(difference).max() < 2e-5 * expected.std()

    return check


@pytest.fixture
def saved(make_vit, tmp_path):
    """The path of a small model's checkpoint: 4 x 4 patches, 5 classes, hidden layer of 12."""
    keras_vit.save_checkpoint(make_vit(representation_size=12), tmp_path / "model.npz")
    return tmp_path / "model.npz"
