"""The Gaussian error linear unit, x Φ(x).

Each flavor is spelled in two ways that agree to rounding. `tanh_gelu` and `erf_gelu` have
the form that compilers and converters know as one operation (`keras.ops.gelu` has not).
Differentiated as they stand, they would keep and add up a dozen intermediates; training
takes x times the probability, with the derivative in closed form.
"""

import math

from keras import ops

from keras_vit.type_hints import Tensor

_LINEAR = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def tanh_gelu(x: Tensor) -> Tensor:
    """GELU with Φ approximated by a tanh (Hendrycks and Gimpel, 2016)."""
    return (0.5 * x) * (1 + ops.tanh(_LINEAR * (x + _CUBIC * (x * (x * x)))))


def erf_gelu(x: Tensor) -> Tensor:
    """GELU with Φ as it is."""
    return (0.5 * x) * (1 + ops.erf(x * math.sqrt(0.5)))


def _logistic(x):
    """Returns the tanh flavor's Φ, which is a logistic function, and its derivative."""
    square = x * x
    probability = ops.sigmoid(x * (2 * _LINEAR + (2 * _LINEAR * _CUBIC) * square))
    slope = 2 * _LINEAR + (6 * _LINEAR * _CUBIC) * square
    return probability, (probability * (1 - probability)) * slope


def _normal(x):
    """Returns Φ and its derivative, the normal density."""
    probability = 0.5 + 0.5 * ops.erf(x * math.sqrt(0.5))
    return probability, math.sqrt(0.5 / math.pi) * ops.exp(-0.5 * (x * x))


def _trained(distribution):
    @ops.custom_gradient
    def gelu(x):
        # The derivative repeats terms of the value; compilers compute them once.
        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            probability, density = distribution(x)
            return upstream * (probability + x * density)

        return x * distribution(x)[0], gradient

    return gelu


GELU_FLAVORS = {"tanh": tanh_gelu, "erf": erf_gelu}
TRAINED_GELU_FLAVORS = {"tanh": _trained(_logistic), "erf": _trained(_normal)}
