import numpy as np
import pytest

from keras_vit.layers import RootPooling, StandardizedConv2D


@pytest.mark.parametrize(
    ("rule", "low", "high"), [("hybrid", 0.41049758, 1.23149273), ("bit", 0.4454354, 1.33630621)]
)
def test_rules(rule, low, high, to_numpy):
    conv = StandardizedConv2D(1, 2, standardization=rule)
    kernel = (np.array([1, 2, 3, 4]) * 1e-4).reshape(2, 2, 1, 1).astype("float32")
    found = to_numpy(conv.standardize(kernel)).ravel()
    np.testing.assert_allclose(found, [-high, -low, low, high], rtol=2e-6)


@pytest.mark.parametrize(("padding", "outside"), [("edge", -np.inf), ("zero", 0.0)])
@pytest.mark.parametrize("size", [(6, 8), (7, 5)])
def test_maxima_of_the_root(padding, outside, size, to_numpy):
    inputs = np.random.default_rng(0).normal(-1, 1, (2, *size, 3)).astype("float32")
    padded = np.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = windows[:, ::2, ::2].max((-1, -2))
    layer = RootPooling(padding)
    result = to_numpy(layer(inputs))
    assert result.shape == layer.compute_output_shape(inputs.shape)
    np.testing.assert_array_equal(result, expected)
