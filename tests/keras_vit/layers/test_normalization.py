import numpy as np
import pytest

from keras_vit.layers import GroupNormalization, LayerNormalization


@pytest.mark.parametrize("make", [LayerNormalization, GroupNormalization])
def test_statistics_are_float32_in_half_precision(make, to_numpy):
    """Values whose squares overflow float16 are normalized nevertheless."""
    x = (1000 * np.random.default_rng(0).standard_normal((2, 3, 4, 64))).astype("float16")
    half, single = make(dtype="mixed_float16"), make(dtype="float32")
    result = to_numpy(half(x))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, to_numpy(single(x.astype("float32"))), atol=4e-3)
