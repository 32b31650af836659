"""Flips, shifts and the range of pixels; one-hot labels; mixup of both in a batch."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from keras import ops

from .parse_operations import operation


@operation("flip_lr")
def flip_lr(probability: float = 0.5) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Mirrors the image left to right with `probability`."""

    def apply(image, seed):
        flip = tf.random.stateless_uniform((), seed) < probability
        return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)

    return apply


@operation("pad")
def pad(pixels: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Adds `pixels` pixels of 0 on every side, which are black before `value_range`."""
    return lambda image: tf.pad(image, [[pixels, pixels], [pixels, pixels], [0, 0]])


@operation("random_shift")
def random_shift(pixels: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Moves the image by up to `pixels` pixels each way; 0 comes in, black before `value_range`."""

    def apply(image, seed):
        offset = tf.random.stateless_uniform((2,), seed, 0, 2 * pixels + 1, dtype=tf.int32)
        shifted = tf.slice(pad(pixels)(image), [offset[0], offset[1], 0], tf.shape(image))
        return tf.ensure_shape(shifted, image.shape)

    return apply


@operation("value_range")
def value_range(
    low: float = -1.0, high: float = 1.0, in_low: float = 0.0, in_high: float = 255.0
) -> Callable[..., tf.Tensor]:
    """Maps `in_low`..`in_high` to `low`..`high`; float32.

    `in_one_pass` maps uint8 in one pass over the pixels instead of three, equal to rounding.
    """
    scale = (high - low) / (in_high - in_low)
    shift = low - in_low * scale
    is_of_bytes = (in_low, in_high) == (0, 255) and low < high

    def apply(image, in_one_pass=False):
        if in_one_pass and is_of_bytes and image.dtype == tf.uint8:
            codes = tf.bitcast(image, tf.quint8)
            return tf.raw_ops.Dequantize(input=codes, min_range=low, max_range=high)
        # On the device an array of any backend.
        cast = tf.cast if tf.is_tensor(image) else ops.cast
        return cast(image, "float32") * scale + shift

    return apply


@operation("to_uint8")
def to_uint8() -> Callable[[tf.Tensor], tf.Tensor]:
    """Rounds to uint8, a quarter of the bytes to the device; normalize after `on_device`."""
    return lambda image: tf.saturate_cast(tf.round(image), tf.uint8)


@operation("on_device")
def on_device() -> Callable[[tf.Tensor], tf.Tensor]:
    """Marks the end of the host's part: the training step applies what follows."""
    return lambda image: image


@operation("one_hot", stage="label")
def one_hot(num_classes: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Labels as float32 (num_classes,); training and evaluation do so by themselves.

    One-hot of a scalar class, multi-hot of a list of them. An empty list gives zeros; evaluation
    leaves such images out of its count.
    A class outside 0..num_classes-1 gives NaN, which every pipeline refuses.
    """

    def apply(label):
        label = tf.convert_to_tensor(label)
        if not label.dtype.is_integer:
            raise ValueError(f"Expected one_hot of classes, ints. Received: {label.dtype.name}.")
        valid = tf.reduce_all((label >= 0) & (label < num_classes))
        encoded = tf.one_hot(label, num_classes, dtype=tf.float32)
        if label.shape.rank == 1:
            # A maximum over no rows would be -inf.
            encoded = tf.minimum(tf.reduce_sum(encoded, axis=0), 1.0)
        return tf.ensure_shape(tf.where(valid, encoded, np.nan), (num_classes,))

    return apply


@operation("mixup", stage="batch")
def mixup(p: float) -> Callable[..., dict[str, tf.Tensor]]:
    """Blends every image and label with its partner, the image before it in the batch.

    λ ~ Beta(p, p), λ ← max(λ, 1 − λ), one λ for the global batch of a step.
    """
    if not 0 <= p < np.inf:
        raise ValueError(f"Expected mixup's p to be at least 0 and finite. Received: {p}.")

    def apply(batch, partner, seed):
        weight = tf.constant(1.0)
        if p > 1e-300:
            # A beta is a ratio of gammas, by their logarithms: those of small p underflow.
            of_gammas, of_uniforms = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
            alpha = tf.constant(p, tf.float64)
            gammas = tf.random.stateless_gamma((2,), of_gammas, alpha + 1, dtype=alpha.dtype)
            uniforms = 1 - tf.random.stateless_uniform((2,), of_uniforms, dtype=alpha.dtype)
            first, second = tf.unstack(tf.math.log(gammas) + tf.math.log(uniforms) / alpha)
            weight = tf.cast(tf.sigmoid(tf.abs(first - second)), tf.float32)

        def blend(one, other):
            return weight * tf.cast(one, tf.float32) + (1 - weight) * tf.cast(other, tf.float32)

        return {key: blend(batch[key], partner[key]) for key in batch}

    return apply
