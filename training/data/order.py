"""The order of the examples: which of them stands at which position of a run.

Position g of a run lies in epoch g // N at place g % N, N being the number of examples. Every epoch
visits every example once in an order of its own, a function of (seed, epoch, place) alone: a keyed
permutation without a table.

A Feistel network maps pairs of digits (left, right) of a mixed-radix number to pairs: it adds to
each digit in turn a hash of the other, which can be undone, so it permutes. Numbers beyond the
examples are mapped again until an example comes out ("cycle walking"; Black and Rogaway, "Ciphers
with arbitrary finite domains", 2002). The arithmetic is that of whole numbers modulo 2^64, so that
every machine and version computes the same.
"""

import math
from collections.abc import Collection

import numpy as np
import tensorflow as tf

from .traced_functions import as_it_stands, traced_once

_FOREVER = 2**62
# Positions ordered in one call: enough for the cost of a call not to count.
_CHUNK = 4096
# Each digit changes at every second. Neighbors of six examples are independent from 16 on, those of
# a hundred already from six on.
_ROUNDS = 16
_GOLDEN_RATIO = 0x9E3779B97F4A7C15


def example_order(
    num_examples: int, seed: int, start: int, batch_size: int, slots: Collection[int]
) -> tf.data.Dataset:
    """Returns (position, index of the example), both int64, of every position from `start` on.

    Yields only the positions `slots`, in 0..batch_size-1, of each global batch. The seed is any
    integer.
    """
    steps = max(1, _CHUNK // len(slots))
    offsets = (np.arange(steps)[:, None] * batch_size + sorted(slots)).reshape(-1)

    def of_chunk(first):
        """Orders the positions of some steps, wherever epochs end among them."""
        positions = first + tf.constant(offsets, tf.int64)
        positions = tf.boolean_mask(positions, positions >= start)
        places, epoch = positions % num_examples, positions // num_examples
        return positions, permute(places, epoch=epoch, num_examples=num_examples, seed=seed)

    first = start // batch_size * batch_size
    chunks = tf.data.Dataset.range(first, _FOREVER, steps * batch_size)
    chunks = chunks.map(as_it_stands(of_chunk), num_parallel_calls=1).prefetch(1)
    return chunks.flat_map(as_it_stands(lambda *pair: tf.data.Dataset.from_tensor_slices(pair)))


def permute(places: tf.Tensor, *, epoch: tf.Tensor, num_examples: int, seed: int) -> tf.Tensor:
    """Returns the examples, int64 (n,), at places of epochs; over an epoch, a permutation.

    `places` are int64 (n,) in 0..num_examples-1, with an `epoch` each; examples at most 2^62.
    """
    rights = math.isqrt(num_examples - 1) + 1
    lefts = -(-num_examples // rights)
    return _walk(places, epoch, *map(_number, (seed, num_examples, lefts, rights)))


@traced_once(*[tf.TensorSpec((None,), tf.int64)] * 2, *[tf.TensorSpec((), tf.uint64)] * 4)
def _walk(places, epoch, seed, num_examples, lefts, rights):
    key = _mix(_mix(tf.cast(epoch, tf.uint64) + _number(_GOLDEN_RATIO)) + seed)

    def network(numbers):
        def two_rounds(turn, left, right):
            left = (left + _hash(key, turn, right) % lefts) % lefts
            right = (right + _hash(key, turn + _number(1), left) % rights) % rights
            return turn + _number(2), left, right

        state = (_number(0), numbers // rights, numbers % rights)
        _, left, right = tf.while_loop(lambda turn, *_: turn < _number(_ROUNDS), two_rounds, state)
        return left * rights + right

    def walk(numbers, beyond):
        numbers = tf.where(beyond, network(numbers), numbers)
        return numbers, numbers >= num_examples

    # Once for all, and again for those beyond the examples.
    numbers, _ = tf.while_loop(
        lambda _, beyond: tf.reduce_any(beyond),
        walk,
        (tf.cast(places, tf.uint64), tf.ones_like(places, tf.bool)),
    )
    return tf.cast(numbers, tf.int64)


def _hash(key: tf.Tensor, turn: tf.Tensor, digit: tf.Tensor) -> tf.Tensor:
    # A digit has 31 bits: turn and digit are one number, and no two of an epoch are the same.
    return _mix(tf.bitwise.bitwise_xor(key, tf.bitwise.left_shift(turn, _number(32)) + digit))


def _mix(numbers: tf.Tensor) -> tf.Tensor:
    """The finalizer of SplitMix64: every bit of the result depends on every bit of a number."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = _folded(numbers, shift) * _number(factor)
    return _folded(numbers, 31)


def _folded(numbers: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(numbers, tf.bitwise.right_shift(numbers, _number(shift)))


def _number(value: int) -> tf.Tensor:
    return tf.constant(value % 2**64, tf.uint64)
