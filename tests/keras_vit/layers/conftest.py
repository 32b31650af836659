"""Layers with random weights."""

import numpy as np
import pytest


@pytest.fixture
def randomized():
    """Returns a function that builds a layer for a shape and gives it random weights."""

    def randomize(layer, shape):
        layer.build(shape)
        rng = np.random.default_rng(0)
        for weight in layer.weights:
            value = rng.standard_normal(weight.shape)
            weight.assign(np.abs(value) + 0.5 if "variance" in weight.name else value)
        return layer

    return randomize
