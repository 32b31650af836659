"""Flips and shifts, the range of pixel values, and on which side of the transfer it changes."""

from collections.abc import Callable

import tensorflow as tf

from training.data.preprocessing.operation import operation


@operation("flip_lr")
def flip_lr(probability: float = 0.5) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Mirrors the image left to right with `probability`."""

    def apply(image, seed):
        flip = tf.random.stateless_uniform((), seed) < probability
        return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)

    return apply


@operation("pad")
def pad(pixels: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Adds `pixels` black pixels on every side."""
    return lambda image: tf.pad(image, [[pixels, pixels], [pixels, pixels], [0, 0]])


@operation("random_shift")
def random_shift(pixels: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Moves the image by up to `pixels` pixels each way; what comes in is black."""

    def apply(image, seed):
        offset = tf.random.stateless_uniform((2,), seed, 0, 2 * pixels + 1, dtype=tf.int32)
        shifted = tf.slice(pad(pixels)(image), [offset[0], offset[1], 0], tf.shape(image))
        return tf.ensure_shape(shifted, image.shape)

    return apply


@operation("value_range")
class ValueRange:
    """Maps `in_low`..`in_high` to `low`..`high`; float32."""

    def __init__(
        self, low: float = -1.0, high: float = 1.0, in_low: float = 0.0, in_high: float = 255.0
    ):
        self._scale = (high - low) / (in_high - in_low)
        self._shift = low - in_low * self._scale
        self._of_bytes = (low, high) if (in_low, in_high) == (0, 255) and low < high else None

    def __call__(self, image: tf.Tensor) -> tf.Tensor:
        """Returns the image in the new range."""
        return tf.cast(image, tf.float32) * self._scale + self._shift

    def in_one_pass(self, image: tf.Tensor) -> tf.Tensor:
        """Returns the same, to rounding, in one pass over the pixels of uint8 instead of three."""
        if image.dtype != tf.uint8 or not self._of_bytes:
            return self(image)
        low, high = self._of_bytes
        return tf.raw_ops.Dequantize(
            input=tf.bitcast(image, tf.quint8), min_range=low, max_range=high, mode="MIN_COMBINED"
        )


@operation("to_uint8")
def to_uint8() -> Callable[[tf.Tensor], tf.Tensor]:
    """Rounds to uint8, a quarter of the bytes to the device; normalize after `on_device`."""
    return lambda image: tf.saturate_cast(tf.round(image), tf.uint8)


@operation("on_device")
def on_device() -> Callable[[tf.Tensor], tf.Tensor]:
    """Marks the end of the host's part: the training step applies what follows."""
    return lambda image: image
