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


def test_filters_are_standardized_one_by_one(to_numpy):
    conv = StandardizedConv2D(6, 3)
    kernel = np.random.default_rng(0).normal(3, 7, (3, 3, 4, 6)).astype("float32")
    result = to_numpy(conv.standardize(kernel)).reshape(-1, 6)
    np.testing.assert_allclose(result.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(result.std(0), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "kernel_size", "strides", "out", "before", "after"),
    [(224, 7, 2, 112, 2, 3), (56, 3, 2, 28, 0, 1), (56, 3, 1, 56, 1, 1)],
)
def test_same_padding(size, kernel_size, strides, out, before, after, to_numpy):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, size, size, 1)).astype("float32")
    conv = StandardizedConv2D(1, kernel_size, strides)
    conv.build(image.shape)
    conv.kernel.assign(rng.standard_normal(conv.kernel.shape))
    kernel = to_numpy(conv.standardize(conv.kernel))[..., 0, 0]
    padded = np.pad(image[0, ..., 0], ((before, after), (before, after)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape)
    expected = np.einsum("ijkl,kl->ij", windows[::strides, ::strides], kernel)
    result = to_numpy(conv(image))[0, ..., 0]
    assert result.shape == expected.shape == (out, out)
    np.testing.assert_allclose(result, expected, atol=2e-5)


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
