import numpy as np
import pytest

from keras_vit.layers import RootPooling


@pytest.mark.parametrize(("padding", "outside"), [("edge", -np.inf), ("zero", 0.0)])
@pytest.mark.parametrize("size", [(6, 8), (7, 5)])
def test_maxima(padding, outside, size, to_numpy):
    inputs = np.random.default_rng(0).normal(-1, 1, (2, *size, 3)).astype("float32")
    padded = np.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = windows[:, ::2, ::2].max((-1, -2))
    layer = RootPooling(padding)
    result = to_numpy(layer(inputs))
    assert result.shape == layer.compute_output_shape(inputs.shape)
    np.testing.assert_array_equal(result, expected)


def test_unknown_padding():
    with pytest.raises(ValueError, match="`padding` must be one of"):
        RootPooling("valid")
