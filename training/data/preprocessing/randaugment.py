"""RandAugment as AugReg used it (Cubuk et al., 2019; Steiner et al., 2021).

The published models were trained with an implementation that has quirks. They are kept,
because the strengths were tuned with them:

* Contrast blends toward the constant `min(255, pixels / 256)`, 196 for 224×224, and not
  toward the image's mean gray.
* Solarize compares with its threshold as a byte: at m = 10 and m = 20 the threshold of 256 and
  512 becomes 0, which inverts the whole image, and 384 (m = 15) becomes 128.
* Posterize shifts by at most 7 bits: at m = 0 and from m = 23 on one bit remains.
* m = 0 is not the identity: colors are blended with a factor of 0.1, images may be inverted.
* Every chosen operation is applied; its random probability is unused.
"""

import math
from collections.abc import Callable
from functools import partial

import tensorflow as tf

from ...paper_tables import AUGREG_STRENGTHS
from .parse_operations import NO_CLASS, operation

_GRAY = 128
# Operations that move pixels; the others change colors.
_MOVING = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")


class Strengths:
    """Arguments of the operations at a magnitude m: linear in it, integers rounded down."""

    def __init__(self, magnitude: float):
        level = magnitude / 10
        self.rotate = 30 * level  # degrees
        self.shear = 0.3 * level  # displacement of a pixel per pixel
        self.translate = 100 * level  # pixels
        self.enhance = 1.8 * level + 0.1  # of color, contrast, brightness and sharpness
        self.posterize_bits = int(4 * level)  # that are kept
        shift = 8 - self.posterize_bits
        self.posterize_mask = 256 - 2 ** (shift if 0 <= shift <= 7 else 7)
        self.solarize_threshold = int(256 * level)  # before it is reduced to a byte
        self.solarize_add = int(110 * level)  # levels that are added below 128
        self.cutout = int(40 * level)  # half the side of the square


@operation("randaugment", stage="geometry")
def randaugment(num_layers: int, magnitude: float) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Applies `num_layers` operations, each one of sixteen at random, at one magnitude.

    Takes RGB in 0..255 and returns uint8; what a resize made float32 is rounded first. Maps of
    classes are moved alike, and keep their classes where colors change.
    """
    at = Strengths(magnitude)

    def apply(image, seed):
        operations = OPERATIONS
        if image.dtype == tf.int32:
            operations = {
                name: op if name in _MOVING else _unmoved for name, op in OPERATIONS.items()
            }
        elif image.dtype != tf.uint8:
            image = tf.saturate_cast(tf.round(image), tf.uint8)
        for layer in range(num_layers):
            seeds = [tf.random.fold_in(seed, 3 * layer + offset) for offset in range(3)]
            number = tf.random.stateless_uniform((), seeds[0], 0, len(operations), tf.int32)
            sign = tf.where(tf.random.stateless_uniform((), seeds[1]) < 0.5, -1.0, 1.0)
            place = tf.random.stateless_uniform((2,), seeds[2])
            branches = [partial(op, image, at, sign, place) for op in operations.values()]
            image = tf.ensure_shape(tf.switch_case(number, branches), image.shape)
        return image

    return apply


@operation("augreg", stage="text")
def augreg(strength: str) -> str:
    """RandAugment and mixup as in one of AugReg's seven strengths, "none" to "strong2".

    Stands where RandAugment does, after the flip and before `value_range`.
    """
    if strength not in AUGREG_STRENGTHS:
        raise ValueError(f"unknown strength {strength!r}, expected one of {list(AUGREG_STRENGTHS)}")
    return AUGREG_STRENGTHS[strength]


def _blend(base, image, factor: float):
    mixed = tf.cast(base, tf.float32)
    mixed += factor * (tf.cast(image, tf.float32) - mixed)
    return tf.cast(tf.clip_by_value(mixed, 0.0, 255.0), tf.uint8)


def _affine(image, x, y):
    """Samples the nearest pixel at the place that (column, row, 1) is mapped to by `x` and `y`."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=tf.stack([tf.cast(factor, tf.float32) for factor in (*x, *y, 0, 0)])[None],
        output_shape=tf.shape(image)[:2],
        interpolation="NEAREST",
        fill_mode="CONSTANT",
        fill_value=float(NO_CLASS if image.dtype == tf.int32 else _GRAY),
    )[0]


def _unmoved(image, *_):
    return image


def _autocontrast(image, at, *_):
    values = tf.cast(image, tf.float32)
    low, high = tf.reduce_min(values, (0, 1)), tf.reduce_max(values, (0, 1))
    scale = tf.where(high > low, 255.0 / (high - low), 1.0)
    offset = tf.where(high > low, -low * scale, 0.0)
    return tf.cast(tf.clip_by_value(values * scale + offset, 0.0, 255.0), tf.uint8)


def _equalize(image, at, *_):
    def channel(values):
        counts = tf.math.bincount(tf.reshape(values, [-1]), minlength=256, maxlength=256)
        step = (tf.size(values) - counts[tf.reduce_max(values)]) // 255
        table = (tf.cumsum(counts, exclusive=True) + step // 2) // tf.maximum(step, 1)
        table = tf.where(step > 0, tf.clip_by_value(table, 0, 255), tf.range(256))
        return tf.gather(table, values)

    channels = [channel(values) for values in tf.unstack(tf.cast(image, tf.int32), axis=2)]
    return tf.cast(tf.stack(channels, axis=2), tf.uint8)


def _rotate(image, at, sign, _):
    angle = sign * (at.rotate * math.pi / 180)
    cos, sin = tf.cos(angle), tf.sin(angle)
    bottom, right = (tf.cast(tf.shape(image)[k] - 1, tf.float32) for k in (0, 1))
    x = (right - (cos * right - sin * bottom)) / 2
    y = (bottom - (sin * right + cos * bottom)) / 2
    return _affine(image, (cos, -sin, x), (sin, cos, y))


def _contrast(image, at, *_):
    pixels = tf.cast(tf.shape(image)[0] * tf.shape(image)[1], tf.float32)
    return _blend(tf.floor(tf.minimum(pixels / 256.0, 255.0)), image, at.enhance)


def _sharpness(image, at, *_):
    kernel = tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32)[..., None, None] / 13.0
    kernel = tf.tile(kernel, [1, 1, 3, 1])
    values = tf.cast(image, tf.float32)[None]
    smooth = tf.nn.depthwise_conv2d(values, kernel, [1, 1, 1, 1], padding="VALID")[0]
    smooth = tf.cast(tf.clip_by_value(smooth, 0.0, 255.0), tf.uint8)
    border = [[1, 1], [1, 1], [0, 0]]
    inside = tf.pad(tf.ones_like(smooth, tf.bool), border)
    return _blend(tf.where(inside, tf.pad(smooth, border), image), image, at.enhance)


def _cutout(image, at, _, place):
    def near(part, size):
        center = tf.cast(part * tf.cast(size, tf.float32), tf.int32)
        return (tf.range(size) >= center - at.cutout) & (tf.range(size) < center + at.cutout)

    rows, columns = (near(place[k], tf.shape(image)[k]) for k in (0, 1))
    inside = rows[:, None, None] & columns[None, :, None]
    return tf.where(inside, tf.constant(_GRAY, tf.uint8), image)


# Every operation takes (image, strengths, a random sign, two random numbers in 0..1).
OPERATIONS: dict[str, Callable[..., tf.Tensor]] = {
    "AutoContrast": _autocontrast,
    "Equalize": _equalize,
    "Invert": lambda image, *_: 255 - image,
    "Rotate": _rotate,
    "Posterize": lambda image, at, *_: tf.bitwise.bitwise_and(image, at.posterize_mask),
    "Solarize": lambda image, at, *_: tf.where(
        image < at.solarize_threshold % 256, image, 255 - image
    ),
    "Color": lambda image, at, *_: _blend(
        tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image)), image, at.enhance
    ),
    "Contrast": _contrast,
    "Brightness": lambda image, at, *_: _blend(0, image, at.enhance),
    "Sharpness": _sharpness,
    "ShearX": lambda image, at, sign, _: _affine(image, (1, sign * at.shear, 0), (0, 1, 0)),
    "ShearY": lambda image, at, sign, _: _affine(image, (1, 0, 0), (sign * at.shear, 1, 0)),
    "TranslateX": lambda image, at, sign, _: _affine(image, (1, 0, sign * at.translate), (0, 1, 0)),
    "TranslateY": lambda image, at, sign, _: _affine(image, (1, 0, 0), (0, 1, sign * at.translate)),
    "Cutout": _cutout,
    "SolarizeAdd": lambda image, at, *_: tf.where(
        image < 128, tf.saturate_cast(tf.cast(image, tf.int32) + at.solarize_add, tf.uint8), image
    ),
}
