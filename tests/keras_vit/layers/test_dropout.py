import numpy as np
import pytest

from keras_vit.layers import Dropout, StochasticDepth


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_small_rate_is_kept_in_every_precision(dtype, to_numpy):
    layer = Dropout(0.009, seed=0, dtype=dtype)
    dropped = to_numpy(layer(np.ones((100, 10_000), "float32"), training=True)) == 0
    # A million draws: the deviation of their mean is 0.0001.
    assert abs(dropped.mean() - 0.009) < 0.0005


@pytest.mark.parametrize("make", [Dropout, StochasticDepth])
def test_nothing_is_dropped_without_training(make, to_numpy):
    x = np.random.default_rng(0).standard_normal((5, 4, 3)).astype("float32")
    np.testing.assert_array_equal(to_numpy(make(0.5)(x)), x)
    np.testing.assert_array_equal(to_numpy(make(0.0)(x, training=True)), x)


def test_a_held_seed_repeats_its_mask(to_numpy):
    layer = Dropout(0.5, seed=1)
    x = np.ones((20, 20), "float32")
    layer.seed_generator.held = layer.seed_generator.next()
    first = to_numpy(layer(x, training=True))
    np.testing.assert_array_equal(to_numpy(layer(x, training=True)), first)
    layer.seed_generator.held = None
    assert (to_numpy(layer(x, training=True)) != first).any()
