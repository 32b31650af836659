"""Random numbers for a part of a batch, the same as the whole batch has there.

Philox makes numbers of a counter, so that any of them can be made without those before it.
"""

from collections.abc import Callable, Sequence
from functools import partial

import keras
import tensorflow as tf

from keras_vit.type_hints import Tensor

_PHILOX = 1
# Numbers of up to 32 bits that Philox makes of one value of its counter.
_GROUP = 4
# The second seed holds the part's number in its upper 32 bits.
_PARTS = 2**32


def seeds_of_part(seeds: Tensor, part: Tensor) -> Tensor:
    """Returns the seeds with which these functions draw for part number `part` of a batch.

    Parts are equal, of consecutive examples. Seeds are states of `keras.random.SeedGenerator`s,
    int64 (..., 2) below 2**32.
    """
    return seeds + tf.stack([0, tf.cast(part, tf.int64) * _PARTS])


def dropout(
    inputs: Tensor, rate: float, noise_shape: Sequence | None, seed: keras.random.SeedGenerator
) -> Tensor:
    """Does as `keras.random.dropout`, on a part of a batch, (examples, ...), drawn in float32."""
    inputs = tf.convert_to_tensor(inputs)
    shape = keras.ops.shape(inputs) if noise_shape is None else noise_shape
    # Numbers of 16 bits are too coarse to compare with a rate.
    kept = uniform(shape, seed=seed) >= rate
    return tf.where(kept, inputs * (1 / (1 - rate)), tf.zeros([], inputs.dtype))


def uniform(shape: Sequence, seed: keras.random.SeedGenerator) -> Tensor:
    """Does as `keras.random.uniform` from 0 to 1, for a part of a batch, (examples, ...)."""
    return _drawn(partial(tf.raw_ops.StatelessRandomUniformV2, dtype="float32"), shape, seed)


def randint(shape: Sequence, minval: int, maxval: int, seed: keras.random.SeedGenerator) -> Tensor:
    """Does as `keras.random.randint`, int32, for a part of a batch, (examples, ...)."""
    draw = partial(tf.raw_ops.StatelessRandomUniformIntV2, minval=minval, maxval=maxval)
    return _drawn(draw, shape, seed)


def _drawn(draw, shape, seed):
    """Calls `draw` with the counter at which the part's numbers begin among the batch's."""
    seed = tf.cast(seed.next(), tf.int64)
    part = seed[1] // _PARTS
    # Made of seeds as `keras.random` does it, so that part 0 draws what that does.
    low = tf.math.floormod(tf.stack([seed[0], seed[1] % _PARTS]), tf.int32.max - 1)
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.cast(low, tf.int32))

    def numbers(shape, group):
        start = counter + tf.cast(tf.stack([group, 0]), tf.uint64)
        return draw(shape=shape, key=key, counter=start, alg=_PHILOX)

    static = tf.get_static_value(tf.convert_to_tensor(shape))
    size = tf.cast(tf.reduce_prod(shape), tf.int64) if static is None else int(static.prod())
    if static is not None and size % _GROUP == 0:
        return numbers(shape, part * size // _GROUP)
    # The part begins within a group.
    first = part * size
    groups = numbers([(size // _GROUP + 2) * _GROUP], first // _GROUP)
    return tf.reshape(tf.slice(groups, [first % _GROUP], [size]), shape)


def gradient_function(model: keras.Model, score: Callable, finish: Callable) -> Callable:
    """Returns `by_backend.gradient_function`."""

    def run(images, probe, *others):
        images, probe = map(tf.convert_to_tensor, (images, probe))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(probe)
            outputs = model([images, probe], training=False)
            scores = score(outputs, *others)
        return finish(tape.gradient(scores, probe), outputs)

    return run
