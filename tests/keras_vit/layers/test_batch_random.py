"""Parts of a batch draw what the whole batch would draw there."""

import functools

import keras
import numpy as np
import pytest

from keras_vit.backends.by_backend import batch_random
from keras_vit.layers import Dropout, StochasticDepth
from tests.keras_vit.small import BACKEND, of_tensorflow

pytestmark = pytest.mark.skipif(
    BACKEND not in ("tensorflow", "jax"), reason="only engines divide batches"
)

SHAPES = [(48, 5), (48, 3, 3)]
SHAPES += [pytest.param(shape, marks=pytest.mark.long) for shape in ((48, 4), (48, 1))]


def in_parts(draw, parts):
    """Returns what `draw(parts, seeds)` gives for the whole batch, in the order of examples."""
    if BACKEND == "jax":
        from keras_vit.backends.jax import part_of_batch

        drawn = []
        for part in range(parts):
            with part_of_batch(part, parts):
                drawn.append(np.asarray(draw(parts, keras.random.SeedGenerator(7))))
        return np.concatenate(np.stack(drawn, axis=1))
    from keras_vit.backends.tensorflow import seeds_of_part

    drawn = []
    for part in range(parts):
        seeds = keras.random.SeedGenerator(7)
        seeds.state.assign(seeds_of_part(seeds.state, part))
        drawn.append(draw(parts, seeds))
    return np.concatenate(drawn)


def uniform(shape, seeds):
    return batch_random().uniform(shape, seed=seeds)


def compiled(shape, seeds):
    import tensorflow as tf

    return tf.function(lambda: uniform(shape, seeds), jit_compile=True)()


@functools.cache
def traced(others):
    """Returns a graph that draws for any number of examples, and its seeds."""
    import tensorflow as tf

    seeds = keras.random.SeedGenerator(0)
    spec = tf.TensorSpec((None, *others))
    return tf.function(lambda like: uniform(tf.shape(like), seeds), [spec]), seeds


def of_unknown_size(shape, seeds):
    function, own = traced(shape[1:])
    own.state.assign(seeds.state)
    return function(np.zeros(shape, "float32"))


def randint(shape, seeds):
    return batch_random().randint(shape, 1, 1000, seed=seeds)


def dropped(shape, seeds, make=Dropout, dtype="float32"):
    layer = make(0.5, dtype=dtype)
    layer.seed_generator.state.assign(seeds.state)
    return keras.ops.cast(layer(np.ones(shape, "float32"), training=True), "float32")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "draw",
    [
        uniform,
        pytest.param(compiled, marks=of_tensorflow),
        pytest.param(of_unknown_size, marks=of_tensorflow),
        randint,
        dropped,
        functools.partial(dropped, dtype="bfloat16"),
        functools.partial(dropped, make=StochasticDepth),
    ],
)
def test_draws(draw, shape):
    def of_part(parts, seeds):
        return draw((shape[0] // parts, *shape[1:]), seeds)

    whole = in_parts(of_part, 1)
    assert 0.2 < (whole > whole.mean()).mean() < 0.8
    for parts in (3,) if draw is compiled else (2, 3, 48):
        np.testing.assert_array_equal(in_parts(of_part, parts), whole)


@of_tensorflow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [1, 2**40 + 3, -5])
def test_an_undivided_batch_draws_what_keras_draws(shape, seed):
    def drawn(module):
        seeds, ones = keras.random.SeedGenerator(seed), np.ones(shape, "float32")
        for _ in range(2):
            yield module.uniform(shape, seed=seeds)
            yield module.randint(shape, 1, 9, seed=seeds)
            yield module.dropout(ones, 0.3, None, seed=seeds)

    for ours, its in zip(drawn(batch_random()), drawn(keras.random), strict=True):
        np.testing.assert_array_equal(ours, its)


@of_tensorflow
def test_batches_of_unknown_size_drop_as_known_ones():
    import tensorflow as tf

    def dropped(size):
        layer, spec = StochasticDepth(0.5, seed=3), tf.TensorSpec((size, 4))
        return tf.function(lambda x: layer(x, training=True), [spec])(tf.ones((8, 4)))

    np.testing.assert_array_equal(dropped(8), dropped(None))
