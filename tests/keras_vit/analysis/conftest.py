import keras
import numpy as np
import pytest

import keras_vit


def randomize(model, seed=0, scale=0.3):
    """Gives every weight a value, so that no branch is silenced by a zero initialization."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if weight.dtype.startswith("float"):
            value = scale * rng.standard_normal(weight.shape)
            weight.assign(value + (1 if weight.name == "gamma" else 0))
    return model


@pytest.fixture
def make_model():
    """Returns a function that builds a small model with random weights."""

    def make(**overrides):
        arguments = {
            "image_size": (16, 24),
            "patch_size": 4,
            "hidden_size": 16,
            "mlp_dim": 32,
            "num_heads": 2,
            "num_layers": 3,
            "num_classes": 5,
            **overrides,
        }
        return randomize(keras_vit.VisionTransformer(**arguments))

    return make


@pytest.fixture
def images():
    """A batch of three rectangular images, (3, 16, 24, 3) in [-1, 1]."""
    return np.random.default_rng(1).uniform(-1, 1, (3, 16, 24, 3)).astype("float32")


@pytest.fixture
def to_numpy():
    return keras.ops.convert_to_numpy
