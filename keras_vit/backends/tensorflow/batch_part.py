"""Random numbers of one part of a batch: those that the whole batch would have there.

Philox makes numbers of a counter, so that any of them can be made without those before it.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_vit.type_hints import Tensor

_PHILOX = 1
# Numbers of up to 32 bits that Philox makes of one value of its counter.
_GROUP = 4
# The number of the part stands above the lower half of the second seed.
_PARTS = 2**32


def seeds_of_part(seeds: Tensor, part: Tensor) -> Tensor:
    """Returns the seeds with which these functions draw for one of several parts of a batch.

    Args:
        seeds: states of `keras.random.SeedGenerator`s, int64 (..., 2) below 2**32.
        part: int scalar, its number. The parts are equal, of consecutive examples, 0 first.
    """
    return seeds + tf.stack([0, tf.cast(part, tf.int64) * _PARTS])


def dropout(
    inputs: Tensor,
    rate: float,
    noise_shape: Sequence | None = None,
    seed: keras.random.SeedGenerator | None = None,
) -> Tensor:
    """Does as `keras.random.dropout`, on a part of a batch, (examples, ...), drawn in float32."""
    inputs = tf.convert_to_tensor(inputs)
    shape = keras.ops.shape(inputs) if noise_shape is None else noise_shape
    # Numbers of 16 bits are too coarse to compare with a rate.
    kept = uniform(shape, seed=seed) >= rate
    return tf.where(kept, inputs * (1 / (1 - rate)), tf.zeros([], inputs.dtype))


def uniform(
    shape: Sequence,
    dtype: str | tf.DType = "float32",
    seed: keras.random.SeedGenerator | None = None,
) -> Tensor:
    """Does as `keras.random.uniform` from 0 to 1, for a part of a batch, (examples, ...)."""

    def draw(shape, key, counter):
        return tf.raw_ops.StatelessRandomUniformV2(
            shape=shape, key=key, counter=counter, alg=_PHILOX, dtype=dtype
        )

    return _drawn(draw, shape, seed)


def randint(
    shape: Sequence, minval: int, maxval: int, seed: keras.random.SeedGenerator | None = None
) -> Tensor:
    """Does as `keras.random.randint`, int32, for a part of a batch, (examples, ...)."""

    def draw(shape, key, counter):
        return tf.raw_ops.StatelessRandomUniformIntV2(
            shape=shape, key=key, counter=counter, alg=_PHILOX, minval=minval, maxval=maxval
        )

    return _drawn(draw, shape, seed)


def _drawn(draw, shape, seed):
    """Calls `draw` with the counter at which the part's numbers begin among the batch's."""
    seed = tf.cast(seed.next(), tf.int64)
    part = seed[1] // _PARTS
    # Made of seeds as `keras.random` does it, so that part 0 draws what that does.
    low = tf.math.floormod(tf.stack([seed[0], seed[1] % _PARTS]), tf.int32.max - 1)
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.cast(low, tf.int32))

    def start_at(group):
        return counter + tf.cast(tf.stack([group, 0]), tf.uint64)

    static = tf.get_static_value(tf.convert_to_tensor(shape))
    size = tf.cast(tf.reduce_prod(shape), tf.int64) if static is None else int(static.prod())
    if static is None or size % _GROUP == 0:
        return draw(shape, key, start_at(part * size // _GROUP))
    # The part begins within a group.
    first = part * size
    numbers = draw([(size // _GROUP + 2) * _GROUP], key, start_at(first // _GROUP))
    return tf.reshape(tf.slice(numbers, [first % _GROUP], [size]), shape)
