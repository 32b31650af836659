"""Operations that Segmenter trains with: crops of images of any size, and their colors.

    decode|resize_between(512, 2048, 0.5, 2)|varied_crop(512)|flip_lr|photometric
          |value_range(-1, 1)|pad_to(512)

They act on an image and its map of classes, as mmsegmentation's of the same purpose.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_vit.photos.operations_text import height_and_width

from ..traced_functions import require
from .geometry import cut, resized
from .parse_operations import NO_CLASS, Example, operation

# Crops that are drawn, the last of which is taken as it is; and what stored maps have for no class.
_DRAWS, _IGNORED = 11, 255
_BRIGHTNESS, _CONTRAST, _HUE = 32.0, 0.5, 18


def size_between(shape: Any, short: Any, long: Any) -> tf.Tensor:
    """Returns the largest (height, width) within `short` and `long` sides, int32; same aspect."""
    old = tf.cast(shape[:2], tf.float64)
    short, long = (tf.cast(side, tf.float64) for side in (short, long))
    factor = tf.minimum(long / tf.reduce_max(old), short / tf.reduce_min(old))
    return tf.cast(old * factor + 0.5, tf.int32)


@operation("resize_between", stage="geometry")
def resize_between(
    short: int, long: int, low: float = 1.0, high: float = 1.0
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Resizes to sides of at most `short` and `long`, keeping the aspect; float32.

    Both are multiplied with one number from `low` to `high` at random, and rounded down.
    """
    if not (0 < short <= long and 0 < low <= high):
        raise ValueError(
            "Expected resize_between(short, long, low, high) with 0 < short <= long and 0 < low <= "
            f"high. Received: {(short, long, low, high)}"
        )

    def apply(image, seed):
        ratio = low + tf.random.stateless_uniform((), seed) * (high - low)
        sides = (tf.floor(side * ratio) for side in (short, long))
        return resized(image, size_between(tf.shape(image), *sides))

    return apply


@operation("varied_crop", stage="example")
def varied_crop(size: int, limit: float = 0.75) -> Callable[[Example, tf.Tensor], Example]:
    """Crops `size` at a random place, or what a smaller image has, with more than one class.

    It is drawn again, up to ten times, while one class covers `limit` of the pixels that have any.
    """
    height_and_width(size)

    def apply(example, seed):
        image, label = example["image"], example.get("label")
        shape = tf.shape(image)[:2]
        extent = tf.minimum(shape, size)
        places = tf.random.stateless_uniform((_DRAWS, 2), seed)
        begins = tf.cast(places * tf.cast(shape - extent + 1, tf.float32), tf.int32)
        # A number just below one may round up beyond the limit.
        windows = tf.concat(
            [tf.minimum(begins, shape - extent), tf.tile(extent[None], [_DRAWS, 1])], axis=1
        )
        number = tf.constant(0)
        if label is not None:

            def is_uniform(number):
                values = tf.reshape(cut(label, windows[number]), [-1])
                known = tf.boolean_mask(values, (values >= 0) & (values != _IGNORED))
                counts = tf.unique_with_counts(known).count
                most = tf.cast(tf.reduce_max(counts), tf.float32)
                return (tf.size(counts) < 2) | (most >= limit * tf.cast(tf.size(known), tf.float32))

            more = lambda number: (number < _DRAWS - 1) & is_uniform(number)  # noqa: E731
            (number,) = tf.while_loop(more, lambda number: [number + 1], [number])
        parts = {"image": image} if label is None else {"image": image, "label": label}
        return example | {key: cut(part, windows[number]) for key, part in parts.items()}

    return apply


@operation("pad_to", stage="geometry")
def pad_to(size: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Fills the image up to `size` below and right, with 0: the mean color after `value_range`."""
    shape = height_and_width(size)

    def apply(image):
        missing = shape - tf.shape(image)[:2]
        message = f"pad_to({size}) needs an image at most that large; crop before it. Received:"
        require(tf.reduce_all(missing >= 0), message, tf.shape(image))
        outside = NO_CLASS if image.dtype == tf.int32 else 0
        paddings = [[0, missing[0]], [0, missing[1]], [0, 0]]
        padded = tf.pad(image, paddings, constant_values=outside)
        return tf.ensure_shape(padded, (*shape, image.shape[2]))

    return apply


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
