"""Random initial weights that NumPy draws: a seed gives the same ones on every backend."""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.type_hints import Tensor

# Deviation of a standard normal distribution that is cut at two deviations.
_TRUNCATED_DEVIATION = 0.87962566103423978


@keras.saving.register_keras_serializable(package="keras_vit")
class RandomNormal(keras.initializers.RandomNormal):
    """`keras.initializers.RandomNormal`, of a seed that is an int from 0 or None."""

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
        values = np.random.default_rng(self.seed).standard_normal(shape, np.float32)
        return ops.cast(values * self.stddev + self.mean, dtype or keras.config.floatx())


@keras.saving.register_keras_serializable(package="keras_vit")
class VarianceScaling(keras.initializers.VarianceScaling):
    """`keras.initializers.VarianceScaling`, of a seed that is an int from 0 or None.

    Lecun's normal initialization by default.
    """

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
        generator = np.random.default_rng(self.seed)
        sides = ((shape or (1,)) * 2)[-2:]  # of a vector its length, twice
        inputs, outputs = (math.prod(shape[:-2]) * side for side in sides)
        fans = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}
        deviation = math.sqrt(self.scale / max(1.0, fans[self.mode]))
        if self.distribution == "uniform":
            values = generator.random(shape, np.float32)
            values -= 0.5
            deviation *= math.sqrt(12)
        else:
            values = generator.standard_normal(shape, np.float32)
        if self.distribution == "truncated_normal":
            deviation /= _TRUNCATED_DEVIATION
            outside = np.flatnonzero(np.abs(values) > 2)
            while outside.size:
                values.flat[outside] = generator.standard_normal(outside.size, np.float32)
                outside = outside[np.abs(values.flat[outside]) > 2]
        values *= deviation
        return ops.cast(values, dtype or keras.config.floatx())


def glorot_uniform() -> keras.Initializer:
    """Returns Glorot's uniform initialization, that of dense layers."""
    return VarianceScaling(mode="fan_avg", distribution="uniform")


def he_normal_fan_out() -> keras.Initializer:
    """Returns He's initialization for the number of outputs, as ResNets use it."""
    return VarianceScaling(2.0, "fan_out", "untruncated_normal")


def he_uniform() -> keras.Initializer:
    """Returns He's uniform initialization, that of low-rank factors."""
    return VarianceScaling(2.0, distribution="uniform")
