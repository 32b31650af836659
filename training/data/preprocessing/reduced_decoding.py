"""Decoding JPEGs at 1/2, 1/4 or 1/8 of their size, where they are made that much smaller anyway.

A JPEG holds the frequencies of blocks of 8×8 pixels. Its decoder makes 4×4, 2×2 or 1×1 pixels of
the lowest of them in a fraction of the time.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from training.data.tracing import traced_once

RATIOS = (1, 2, 4, 8)


def decode_reduced(
    decode: Callable[[int], tf.Tensor], size: tf.Tensor, target: tf.Tensor, least: float
) -> tf.Tensor:
    """Returns `decode(ratio)` of the largest ratio of `RATIOS` that leaves enough pixels.

    Enough are `least` times as many rows and columns as those that they are resized to:
    `size // ratio >= least * target`, of both. Where no ratio leaves them, it is 1.

    Args:
        decode: decodes at one over the ratio of the size.
        size: int32 (2,), height and width of what is decoded, in pixels of the whole image.
        target: int32 (2,), the height and width that they are resized to.
        least: at least 1.
    """
    wanted = least * tf.cast(target, tf.float32)
    # What a ratio leaves, all smaller ones leave.
    enough = [tf.reduce_all(tf.cast(size // ratio, tf.float32) >= wanted) for ratio in RATIOS[1:]]
    number = tf.math.count_nonzero(enough, dtype=tf.int32)

    def smaller():
        ratios = RATIOS[1:]
        return tf.switch_case(number - 1, [functools.partial(decode, ratio) for ratio in ratios])

    if not tf.executing_eagerly():
        smaller = traced_once(inline=False)(smaller)
    return tf.cond(number == 0, lambda: decode(1), smaller)
