import numpy as np
import pytest

from keras_vit.layers import Dropout, StochasticDepth


def test_dropout_keeps_and_scales(to_numpy):
    kept = to_numpy(Dropout(0.25, seed=1)(np.ones((200, 200), "float32"), training=True))
    values, counts = np.unique(kept, return_counts=True)
    np.testing.assert_allclose(values, [0, 4 / 3], rtol=1e-6)
    assert abs(counts[0] / kept.size - 0.25) < 0.01


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_small_rate_is_kept_in_every_precision(dtype, to_numpy):
    layer = Dropout(0.009, seed=0, dtype=dtype)
    dropped = to_numpy(layer(np.ones((100, 10_000), "float32"), training=True)) == 0
    # A million draws: the deviation of their mean is 0.0001.
    assert abs(dropped.mean() - 0.009) < 0.0005


def test_stochastic_depth_drops_whole_examples(to_numpy):
    layer = StochasticDepth(0.5, seed=1)
    kept = to_numpy(layer(np.ones((400, 3, 2), "float32"), training=True))
    assert set(np.unique(kept)) == {0, 2}
    assert (kept == kept[:, :1, :1]).all()
    assert abs(kept[:, 0, 0].mean() - 1) < 0.15


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
