"""The range of pixels, and their part on the device."""

from collections.abc import Callable

import tensorflow as tf
from keras import ops

from .parse_operations import operation


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
