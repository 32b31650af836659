import numpy as np
import pytest

from keras_vit.layers import StandardizedConv2D


def standardized(standardization, to_numpy):
    conv = StandardizedConv2D(1, 2, standardization=standardization)
    kernel = (np.array([1, 2, 3, 4]) * 1e-4).reshape(2, 2, 1, 1).astype("float32")
    return to_numpy(conv.standardize(kernel)).ravel()


def test_rule_of_the_hybrids(to_numpy):
    expected = [-1.23149273, -0.41049758, 0.41049758, 1.23149273]
    np.testing.assert_allclose(standardized("hybrid", to_numpy), expected, rtol=2e-6)


def test_rule_of_bit(to_numpy):
    expected = [-1.33630621, -0.4454354, 0.4454354, 1.33630621]
    np.testing.assert_allclose(standardized("bit", to_numpy), expected, rtol=2e-6)


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


def test_unknown_rule():
    with pytest.raises(ValueError, match="`standardization` must be one of"):
        StandardizedConv2D(1, 1, standardization="batch")
