import functools

import keras
import numpy as np
import pytest

import keras_vit
from tests.golden import golden
from tests.tiny_vit import tiny_vit

to_numpy = keras.ops.convert_to_numpy
BACKEND = keras.backend.backend()
of_jax = pytest.mark.skipif(BACKEND != "jax", reason="KERAS_BACKEND=jax, which make test-jax sets")
of_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's graphs, numbers")
# Arguments of `compile` for so few steps that tracing a graph would take longer.
FEW_STEPS = {"run_eagerly": BACKEND == "tensorflow"}


def randomize(model, seed=0):
    """Gives every weight a value, so that no branch is silenced by a zero initialization."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        fan_in = np.prod(weight.shape[:-1]) if len(weight.shape) > 1 else 10
        value = rng.standard_normal(weight.shape) / np.sqrt(fan_in)
        positive = weight.name == "moving_variance"
        weight.assign(np.abs(value) + 0.5 if positive else value + (weight.name == "gamma"))
    return model


def randomized(layer, shape):
    layer.build(shape)
    return randomize(layer)


def make_vit(seed=0, **overrides):
    return randomize(tiny_vit(**overrides), seed)


# Of three blocks, for rectangular images.
make_wide = functools.partial(make_vit, image_size=(16, 24), num_layers=3)


def make_resnet(seed=0, **overrides):
    arguments = {"num_layers": (1, 2), "width_factor": 0.5, "num_classes": 5, "image_size": 32}
    return randomize(keras_vit.ResNetV2(**arguments | overrides), seed)


def make_axial(**overrides):
    arguments = {"num_layers": (1, 2), "num_classes": 5, "width_factor": 0.25, "num_groups": 2}
    return randomize(keras_vit.AxialResNet(**arguments | overrides))


def make_images(batch=3, height=16, width=16):
    return np.random.default_rng(1).uniform(-1, 1, (batch, height, width, 3)).astype("float32")


def forward(model, inputs):
    if BACKEND == "jax":
        # One compilation of the whole instead of one of every operation.
        import jax

        values = [v.value for v in model.trainable_variables]
        state = [v.value for v in model.non_trainable_variables]
        outputs, _ = jax.jit(model.stateless_call)(values, state, inputs)
    else:
        outputs = model(inputs, training=False)
    return keras.tree.map_structure(to_numpy, outputs)


def endpoints_of(model, inputs):
    return forward(keras.Model(model.input, model.endpoints), inputs)


def gradients(model, images, training=False):
    variables = model.trainable_variables
    if BACKEND == "jax":
        import jax

        def loss(values):
            state = [v.value for v in model.non_trainable_variables]
            outputs, _ = model.stateless_call(values, state, images, training=training)
            return keras.ops.mean(outputs * outputs)

        results = jax.jit(jax.grad(loss))([v.value for v in variables])
    elif BACKEND == "torch":
        import torch

        outputs = model(images, training=training)
        loss = keras.ops.mean(outputs * outputs)
        values = [v.value for v in variables]
        results = torch.autograd.grad(loss, values, allow_unused=True)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            outputs = model(images, training=training)
            loss = keras.ops.mean(outputs * outputs)
        results = tape.gradient(loss, variables)
    return {v.path: to_numpy(g) for v, g in zip(variables, results, strict=True) if g is not None}


def assert_logits(model, case):
    expected = np.array(case["logits"])
    assert np.abs(forward(model, golden.images_of(case)) - expected).max() < 2e-5 * expected.std()


def assert_same(one, two):
    for mine, theirs in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(mine), to_numpy(theirs), err_msg=mine.path)


def positions_of(model):
    return to_numpy(model.get_layer("position_embedding").embedding)


def edited(path, **changes):
    arrays = dict(np.load(path).items()) | changes
    np.savez(path, **{n: a for n, a in arrays.items() if a is not None})
    return path
