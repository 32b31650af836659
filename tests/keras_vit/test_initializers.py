"""Initial weights drawn by NumPy are distributed as Keras's and saved with their layer."""

import keras
import numpy as np
import pytest

from keras_vit import initializers
from tests.keras_vit.small import to_numpy

PAIRS = {
    "normal": (initializers.RandomNormal(0.5, 0.02), keras.initializers.RandomNormal(0.5, 0.02)),
    "lecun_normal": (initializers.VarianceScaling(), keras.initializers.LecunNormal()),
    "glorot_uniform": (initializers.glorot_uniform(), keras.initializers.GlorotUniform()),
    "he_uniform": (initializers.he_uniform(), keras.initializers.HeUniform()),
    "he_normal_fan_out": (
        initializers.he_normal_fan_out(),
        keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal"),
    ),
}


@pytest.mark.parametrize("shape", [(300, 200), (3, 3, 50, 100), (1, 1, 50_000), (50_000,)], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_distribution(name, shape):
    ours, expected = (np.ravel(to_numpy(each(shape))) for each in PAIRS[name])
    for statistic in (np.mean, np.std, lambda x: np.quantile(x, np.linspace(0.05, 0.95, 9))):
        found, value = statistic(ours), statistic(expected)
        np.testing.assert_allclose(found, value, atol=0.06 * expected.std())
    if name.endswith("uniform") or name == "lecun_normal":
        np.testing.assert_allclose(np.abs(ours).max(), np.abs(expected).max(), rtol=1e-3)


@pytest.mark.parametrize("name", PAIRS)
def test_a_seed_gives_the_same_in_any_dtype_and_a_copy_its_own(name):
    keras.utils.set_random_seed(0)
    initializer = PAIRS[name][0].clone()
    weights = initializer((4, 3))
    assert keras.ops.all(weights == initializer((4, 3)))
    half = initializer((4, 3), "bfloat16")
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"
    assert keras.ops.all(half == keras.ops.cast(weights, "bfloat16"))
    assert not keras.ops.all(weights == initializer.clone()((4, 3)))
    config = keras.initializers.serialize(initializer)
    assert keras.initializers.deserialize(config).get_config() == initializer.get_config()
    assert config["registered_name"].startswith("keras_vit>")
