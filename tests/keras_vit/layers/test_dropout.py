import functools
import operator

import keras
import numpy as np
import pytest

from keras_vit.backends.by_backend import batch_random
from keras_vit.layers import Dropout, EncoderBlock, StochasticDepth
from tests.keras_vit.small import BACKEND, make_images, make_vit, of_tensorflow, to_numpy

WITHOUT_ENGINE = BACKEND not in ("tensorflow", "jax")
pytestmark = pytest.mark.skipif(WITHOUT_ENGINE, reason="only engines divide batches")

SHAPES = [(48, 5), (48, 3, 3)]
SHAPES += [pytest.param(shape, marks=pytest.mark.long) for shape in ((48, 4), (48, 1))]
RATE, WIDTH = 0.75, 8
MLP = ["mlp.hidden_dropout", "mlp.output_dropout", "mlp_depth"]


def in_parts(draw, parts):
    drawn = []
    if BACKEND == "jax":
        from keras_vit.backends.jax import part_of_batch

        for part in range(parts):
            with part_of_batch(part, parts):
                drawn.append(np.asarray(draw(parts, keras.random.SeedGenerator(7))))
        return np.concatenate(np.stack(drawn, axis=1))
    from keras_vit.backends.tensorflow import seeds_of_part

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


DRAWS = [uniform, randint, dropped, functools.partial(dropped, dtype="bfloat16")]
DRAWS += [pytest.param(each, marks=of_tensorflow) for each in (compiled, of_unknown_size)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("draw", [*DRAWS, functools.partial(dropped, make=StochasticDepth)])
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_small_rate_is_kept_in_every_precision(dtype):
    layer = Dropout(0.009, seed=0, dtype=dtype)
    dropped = to_numpy(layer(np.ones((100, 10_000), "float32"), training=True)) == 0
    # A million draws: the deviation of their mean is 0.0001.
    assert abs(dropped.mean() - 0.009) < 0.0005


def set_dense(layer, kernel=0.0, bias=0.0):
    layer.kernel.assign(np.broadcast_to(np.float32(kernel), layer.kernel.shape))
    layer.bias.assign(np.full(layer.bias.shape, bias, "float32"))


def added(block, site):
    """Returns what a block makes of zeros, (examples, 4, WIDTH), plainly and dropping at a site."""
    kept = operator.attrgetter(site)(block)
    for inner in block._flatten_layers(include_self=False):
        if isinstance(inner, Dropout) and inner is not kept:
            inner.rate = 0
    zeros = np.zeros((4000, 4, WIDTH), "float32")
    return (to_numpy(block(zeros, training=each)) for each in (False, True))


def assert_dropped(dropped, plain):
    """Three in four are zero and the others four times as large."""
    zeros = dropped == 0
    assert (plain != 0).all() and abs(zeros.mean() - RATE) < 0.05
    np.testing.assert_allclose(dropped[~zeros], plain[~zeros] / (1 - RATE), rtol=1e-5, atol=1e-5)


@pytest.fixture
def block():
    block = EncoderBlock(2, WIDTH, RATE, RATE, RATE)
    block.build((None, 4, WIDTH))
    set_dense(block.attention.out, bias=1)
    set_dense(block.mlp.output_dense)
    return block


@pytest.mark.parametrize("site", ["attention_dropout", "attention_depth", *MLP])
def test_sites_of_a_block(site, block):
    if site in MLP:
        # Each element depends on one element of the site alone.
        hidden = site == "mlp.hidden_dropout"
        set_dense(block.attention.out)
        set_dense(block.mlp.hidden_dense, bias=1)
        set_dense(block.mlp.output_dense, np.eye(WIDTH) if hidden else 0, bias=not hidden)
    plain, dropped = added(block, site)
    assert_dropped(dropped, plain)
    assert (dropped == dropped[:, :1, :1]).all() == site.endswith("depth")


def test_attention_probabilities(block):
    """With equal probabilities and values of 1 an output is the fraction of tokens kept."""
    set_dense(block.attention.query)
    set_dense(block.attention.value, bias=1)
    set_dense(block.attention.out, np.eye(WIDTH))
    plain, dropped = added(block, "attention.dropout")
    np.testing.assert_allclose(plain, 1, rtol=1e-5)
    kept = dropped * (1 - RATE) * 4
    np.testing.assert_allclose(kept, np.round(kept), atol=1e-5)
    assert set(np.round(kept).ravel()) >= {0, 1, 2, 3}
    assert abs(kept.mean() - 4 * (1 - RATE)) < 0.1


def test_embeddings():
    model = make_vit(dropout_rate=RATE)
    embedded = keras.Model(model.input, model.endpoints["embedded"])
    assert_dropped(*(to_numpy(embedded(make_images(20), training=each)) for each in (True, False)))
