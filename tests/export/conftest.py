"""Small models with weights that matter, and images for them."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.export.errors import RuntimeMissing
from keras_vit.export.verification.litert_compiled_model import vulkan_environment


def _randomize(model, seed=0):
    """Sets every weight of a model to noise, so that none can be lost unnoticed."""
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        noise = generator.normal(0, 0.1, weight.shape).astype("float32")
        is_scale = weight.name in ("gamma", "moving_variance")
        weight.assign(1.0 + noise if is_scale else noise)
    return model


@pytest.fixture(scope="session")
def randomize():
    """Returns a function that sets a model's weights to noise and returns the model."""
    return _randomize


@pytest.fixture(scope="session")
def make_vit():
    """Returns a function that builds a tiny ViT with random weights."""

    def make(**overrides):
        keras.utils.set_random_seed(0)
        arguments = {
            "image_size": 32,
            "patch_size": 8,
            "hidden_size": 32,
            "mlp_dim": 64,
            "num_heads": 2,
            "num_layers": 2,
            "num_classes": 5,
            **overrides,
        }
        return _randomize(keras_vit.VisionTransformer(**arguments))

    return make


@pytest.fixture(scope="session")
def images():
    """(8, 32, 32, 3) float32 in [0, 1]."""
    return np.random.default_rng(1).uniform(0, 1, (8, 32, 32, 3)).astype("float32")


@pytest.fixture(scope="session")
def gpu():
    """Skips where there is no Vulkan driver, and says what to install."""
    try:
        vulkan_environment()
    except RuntimeMissing as missing:
        pytest.skip(str(missing))
