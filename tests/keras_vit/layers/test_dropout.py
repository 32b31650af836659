import numpy as np
import pytest

from keras_vit.layers import Dropout


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_small_rate_is_kept_in_every_precision(dtype, to_numpy):
    layer = Dropout(0.009, seed=0, dtype=dtype)
    dropped = to_numpy(layer(np.ones((100, 10_000), "float32"), training=True)) == 0
    # A million draws: the deviation of their mean is 0.0001.
    assert abs(dropped.mean() - 0.009) < 0.0005
