import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.backends.gelu import GELU_FLAVORS, TRAINED_GELU_FLAVORS

POINTS = np.linspace(-8, 8, 1601).astype("float32")


def tanh_reference(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    value = 0.5 * x * (1 + np.tanh(inner))
    return value, 0.5 * (1 + np.tanh(inner)) + 0.5 * x * slope / np.cosh(inner) ** 2


def erf_reference(x):
    probability = 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return x * probability, probability + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


REFERENCES = {"tanh": tanh_reference, "erf": erf_reference}


@pytest.mark.parametrize("flavor", REFERENCES)
@pytest.mark.parametrize("flavors", [GELU_FLAVORS, TRAINED_GELU_FLAVORS])
def test_value_and_derivative(flavor, flavors, to_numpy):
    value, slope = REFERENCES[flavor](POINTS.astype("float64"))
    np.testing.assert_allclose(to_numpy(flavors[flavor](POINTS)), value, atol=1e-6)
    upstream = np.cos(POINTS)
    actual = to_numpy(gradient(lambda x: ops.sum(flavors[flavor](x) * upstream), POINTS))
    np.testing.assert_allclose(actual, upstream * slope, atol=3e-6)


def gradient(function, x):
    if keras.backend.backend() == "jax":
        import jax

        return jax.grad(function)(x)
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return tape.gradient(value, x)
