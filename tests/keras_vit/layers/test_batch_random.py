"""Parts of a batch draw what the whole batch would draw there."""

import keras
import numpy as np
import pytest

from keras_vit.backends.by_backend import batch_random
from keras_vit.layers import Dropout, StochasticDepth
from keras_vit.models.masked_patch_prediction import PatchCorruption

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.skipif(
    BACKEND not in ("tensorflow", "jax"), reason="only engines divide batches"
)
of_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's own numbers")

SHAPES = [(48, 4), (48, 5), (48, 3, 3), (48, 1)]


def in_parts(draw, parts):
    """Returns what `draw(parts, seeds)` gives for the whole batch, in the order of examples."""
    if BACKEND == "jax":
        return in_parts_of_jax(draw, parts)
    from keras_vit.backends.tensorflow import seeds_of_part

    seeds = keras.random.SeedGenerator(7)
    first = seeds.state.numpy()

    def drawn(part):
        seeds.state.assign(seeds_of_part(first, part))
        return draw(parts, seeds)

    return np.concatenate([drawn(part) for part in range(parts)])


def in_parts_of_jax(draw, parts):
    from keras_vit.backends.jax import part_of_batch

    drawn = []
    for part in range(parts):
        with part_of_batch(part, parts):
            drawn.append(np.asarray(draw(parts, keras.random.SeedGenerator(7))))
    return np.concatenate(np.stack(drawn, axis=1))


@pytest.mark.parametrize("shape", SHAPES)
def test_uniform_and_randint(shape):
    def uniform(parts, seeds):
        return batch_random().uniform((shape[0] // parts, *shape[1:]), seed=seeds)

    def compiled(parts, seeds):
        import tensorflow as tf

        return tf.function(lambda: uniform(parts, seeds), jit_compile=True)()

    def randint(parts, seeds):
        return batch_random().randint((shape[0] // parts, *shape[1:]), 1, 1000, seed=seeds)

    for draw in (uniform, randint):
        whole = in_parts(draw, 1)
        assert len(np.unique(whole)) > 9
        for parts in (2, 3, 16, 48):
            np.testing.assert_array_equal(in_parts(draw, parts), whole)
    if BACKEND == "tensorflow" and shape == (48, 5):
        np.testing.assert_array_equal(in_parts(compiled, 3), in_parts(compiled, 1))


@pytest.mark.parametrize(
    "shape, dtype", [((48, 5), "bfloat16"), *((shape, "float32") for shape in SHAPES)]
)
@pytest.mark.parametrize("make", [Dropout, StochasticDepth])
def test_dropout(make, shape, dtype):
    def dropped(parts, seeds):
        layer = make(0.5, dtype=dtype)
        layer.seed_generator.state.assign(seeds.state)
        ones = np.ones((shape[0] // parts, *shape[1:]), "float32")
        return keras.ops.cast(layer(ones, training=True), "float32")

    whole = in_parts(dropped, 1)
    assert 0.2 < (whole == 0).mean() < 0.8
    for parts in (2, 3, 48):
        np.testing.assert_array_equal(in_parts(dropped, parts), whole)


@of_tensorflow
def test_corrupted_patches():
    stem = np.random.default_rng(0).normal(size=(12, 3, 3, 4)).astype("float32")

    def corrupted(parts, seeds):
        layer = PatchCorruption(0.5)
        layer.build((None, 3, 3, 4))
        layer.mask.assign(np.ones(4))
        layer.seed_generator.state.assign(seeds.state)
        size, part = len(stem) // parts, int(seeds.state[1]) >> 32
        tokens, positions = layer(stem[part * size : (part + 1) * size])
        return np.concatenate([np.reshape(tokens, (size, -1)), positions], axis=-1)

    whole = in_parts(corrupted, 1)
    for parts in (2, 3, 12):
        np.testing.assert_array_equal(in_parts(corrupted, parts), whole)


@of_tensorflow
@pytest.mark.parametrize("shape", SHAPES)
def test_an_undivided_batch_draws_what_keras_draws(shape):
    from keras_vit.backends import tensorflow as batch_part

    for seed in (1, 2**40 + 3, -5):
        ours, its = keras.random.SeedGenerator(seed), keras.random.SeedGenerator(seed)
        for _ in range(2):
            np.testing.assert_array_equal(
                batch_part.uniform(shape, seed=ours), keras.random.uniform(shape, seed=its)
            )
            np.testing.assert_array_equal(
                batch_part.randint(shape, 1, 9, seed=ours),
                keras.random.randint(shape, 1, 9, seed=its),
            )
            x = np.ones(shape, "float32")
            np.testing.assert_array_equal(
                batch_part.dropout(x, 0.3, None, seed=ours), keras.random.dropout(x, 0.3, seed=its)
            )


@of_tensorflow
def test_batches_of_unknown_size_drop_as_known_ones():
    import tensorflow as tf

    def dropped(known):
        layer = StochasticDepth(0.5, seed=3)
        spec = tf.TensorSpec((8 if known else None, 4), tf.float32)
        function = tf.function(lambda x: layer(x, training=True), input_signature=[spec])
        return function(tf.ones((8, 4)))

    np.testing.assert_array_equal(dropped(True), dropped(False))
