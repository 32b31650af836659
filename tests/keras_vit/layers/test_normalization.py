import numpy as np
import pytest

from keras_vit.layers import GroupNormalization, LayerNormalization


def test_layer_normalization(to_numpy):
    x = np.random.default_rng(0).normal(2, 3, (4, 5, 16)).astype("float32")
    layer = LayerNormalization(1e-6)
    layer.build(x.shape)
    gamma, beta = np.linspace(1, 2, 16), np.linspace(-1, 1, 16)
    layer.set_weights([gamma, beta])
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(to_numpy(layer(x)), expected * gamma + beta, atol=3e-6)


def test_group_normalization(to_numpy):
    x = np.random.default_rng(0).normal(2, 3, (2, 3, 4, 64)).astype("float32")
    layer = GroupNormalization(1e-5)
    layer.build(x.shape)
    gamma, beta = np.linspace(1, 2, 64), np.linspace(-1, 1, 64)
    layer.set_weights([gamma, beta])
    groups = x.reshape(2, 12, 32, 2)
    centered = groups - groups.mean((1, 3), keepdims=True)
    expected = centered / np.sqrt(groups.var((1, 3), keepdims=True) + 1e-5)
    expected = expected.reshape(x.shape) * gamma + beta
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=3e-6)


@pytest.mark.parametrize("make", [LayerNormalization, GroupNormalization])
def test_statistics_are_float32_in_half_precision(make, to_numpy):
    """Values whose squares overflow float16 are normalized nevertheless."""
    x = (1000 * np.random.default_rng(0).standard_normal((2, 3, 4, 64))).astype("float16")
    half, single = make(dtype="mixed_float16"), make(dtype="float32")
    result = to_numpy(half(x))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, to_numpy(single(x.astype("float32"))), atol=4e-3)
