import numpy as np
import pytest

from keras_vit.layers import GroupNormalization, LayerNormalization


@pytest.mark.parametrize(
    ("layer", "groups", "axes"),
    [
        (LayerNormalization(1e-6), (2, 3, 4, 64), -1),
        (GroupNormalization(1e-5), (2, 12, 32, 2), (1, 3)),
    ],
)
def test_mean_and_variance_of_the_groups(layer, groups, axes, to_numpy):
    x = np.random.default_rng(0).normal(2, 3, (2, 3, 4, 64)).astype("float32")
    layer.build(x.shape)
    gamma, beta = np.linspace(1, 2, 64), np.linspace(-1, 1, 64)
    layer.set_weights([gamma, beta])
    grouped = x.reshape(groups)
    centered = grouped - grouped.mean(axes, keepdims=True)
    expected = centered / np.sqrt(grouped.var(axes, keepdims=True) + layer.epsilon)
    np.testing.assert_allclose(
        to_numpy(layer(x)), expected.reshape(x.shape) * gamma + beta, atol=3e-6
    )


@pytest.mark.parametrize("make", [LayerNormalization, GroupNormalization])
def test_statistics_are_float32_in_half_precision(make, to_numpy):
    """Values whose squares overflow float16 are normalized nevertheless."""
    x = (1000 * np.random.default_rng(0).standard_normal((2, 3, 4, 64))).astype("float16")
    half, single = make(dtype="mixed_float16"), make(dtype="float32")
    result = to_numpy(half(x))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, to_numpy(single(x.astype("float32"))), atol=4e-3)
