"""Operations that change the values of pixels: their range, and colors as Segmenter's."""

from collections.abc import Callable

import tensorflow as tf
from keras import ops

from .parse_operations import operation

_BRIGHTNESS, _CONTRAST, _HUE = 32.0, 0.5, 18


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


@operation("photometric")
def photometric() -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Changes brightness, contrast, saturation and hue of RGB in 0..255, each in half of all cases.

    By up to 32 levels, factors from 0.5 to 1.5, and 36 degrees; contrast comes second or last.
    Each result is clipped and rounded down; uint8.
    """

    def apply(image, seed):
        coins = tf.random.stateless_uniform((5,), tf.random.fold_in(seed, 0)) < 0.5
        return distorted(image, coins, tf.random.stateless_uniform((4,), seed, -1.0, 1.0))

    return apply


def distorted(image: tf.Tensor, coins: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """Returns the image after `photometric`, uint8.

    Args:
        image: (height, width, 3), RGB in 0..255.
        coins: bool (5,): whether brightness, contrast, saturation and hue change, and whether
            contrast comes before the last two.
        draws: (4,) in [-1, 1), of the range of each.
    """
    pixels = tf.cast(image, tf.float32)
    pixels = pixels if image.dtype == tf.uint8 else _bytes(tf.round(pixels))
    contrast = 1.0 + _CONTRAST * draws[1]
    pixels = tf.where(coins[0], _bytes(pixels + _BRIGHTNESS * draws[0]), pixels)
    pixels = tf.where(coins[1] & coins[4], _bytes(pixels * contrast), pixels)
    # OpenCV stores half of the hue's degrees, and saturation and value in 0..255.
    colors = tf.round(tf.image.rgb_to_hsv(pixels / 255.0) * (180.0, 255.0, 255.0))
    hue, saturation, value = tf.split(colors, 3, axis=-1)
    saturated = _bytes(saturation * (1.0 + _CONTRAST * draws[2]))
    saturation = tf.where(coins[2], saturated, saturation)
    shift = tf.floor((draws[3] + 1.0) * _HUE) - _HUE
    hue = tf.where(coins[3], hue + shift, hue) % 180.0
    changed = tf.concat([hue, saturation, value], axis=-1) / (180.0, 255.0, 255.0)
    changed = tf.round(tf.image.hsv_to_rgb(changed) * 255.0)
    pixels = tf.where(coins[2] | coins[3], changed, pixels)
    pixels = tf.where(coins[1] & ~coins[4], _bytes(pixels * contrast), pixels)
    return tf.cast(pixels, tf.uint8)


def _bytes(values):
    return tf.floor(tf.clip_by_value(values, 0.0, 255.0))
