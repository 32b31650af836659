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
from typing import NamedTuple

import tensorflow as tf

from training.data.preprocessing.operation import operation

_FILL = 128


class Strengths(NamedTuple):
    """Arguments of the operations at one magnitude m; signs are random.

    Attributes:
        rotate: degrees.
        shear: displacement of a pixel per pixel.
        translate: pixels.
        enhance: factor of the blends of color, contrast, brightness and sharpness.
        posterize_bits: bits that are kept.
        solarize_threshold: before it is reduced to a byte.
        solarize_add: levels that are added below 128.
        cutout: half the side of the square.
    """

    rotate: float
    shear: float
    translate: float
    enhance: float
    posterize_bits: int
    solarize_threshold: int
    solarize_add: int
    cutout: int


def strengths(magnitude: float) -> Strengths:
    """Returns the arguments at magnitude `m`: linear in it, integers rounded down."""
    level = magnitude / 10
    return Strengths(
        rotate=30 * level,
        shear=0.3 * level,
        translate=100 * level,
        enhance=1.8 * level + 0.1,
        posterize_bits=int(4 * level),
        solarize_threshold=int(256 * level),
        solarize_add=int(110 * level),
        cutout=int(40 * level),
    )


@operation("randaugment")
def randaugment(num_layers: int, magnitude: float) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Applies `num_layers` operations, each one of sixteen at random, at one magnitude.

    Takes RGB in 0..255 and returns uint8; what a resize made float32 is rounded first.
    """
    at = strengths(magnitude)
    names = tuple(OPERATIONS)

    def apply(image, seed):
        if image.dtype != tf.uint8:
            image = tf.saturate_cast(tf.round(image), tf.uint8)
        shape = image.shape
        for layer in range(num_layers):
            choice_seed, sign_seed, place_seed = (
                tf.random.fold_in(seed, 3 * layer + offset) for offset in range(3)
            )
            sign = tf.where(tf.random.stateless_uniform((), sign_seed) < 0.5, -1.0, 1.0)
            place = tf.random.stateless_uniform((2,), place_seed)
            branches = [
                lambda name=name, image=image, sign=sign, place=place: OPERATIONS[name](
                    image, at, sign, place
                )
                for name in names
            ]
            number = tf.random.stateless_uniform(
                (), choice_seed, maxval=len(names), dtype=tf.int32, minval=0
            )
            image = tf.ensure_shape(tf.switch_case(number, branches), shape)
        return image

    return apply


def _blend(base, image, factor: float):
    mixed = tf.cast(base, tf.float32)
    mixed += factor * (tf.cast(image, tf.float32) - mixed)
    return tf.cast(tf.clip_by_value(mixed, 0.0, 255.0), tf.uint8)


def _transform(image, matrix):
    """Samples the nearest pixel at the places the projective `matrix` names."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=tf.cast(tf.stack([*matrix, 0.0, 0.0]), tf.float32)[None],
        output_shape=tf.shape(image)[:2],
        interpolation="NEAREST",
        fill_mode="CONSTANT",
        fill_value=float(_FILL),
    )[0]


def _autocontrast(image, at, sign, place):
    values = tf.cast(image, tf.float32)
    low, high = tf.reduce_min(values, (0, 1)), tf.reduce_max(values, (0, 1))
    scale = tf.where(high > low, 255.0 / (high - low), 1.0)
    offset = tf.where(high > low, -low * scale, 0.0)
    return tf.cast(tf.clip_by_value(values * scale + offset, 0.0, 255.0), tf.uint8)


def _equalize(image, at, sign, place):
    def channel(values):
        counts = tf.math.bincount(tf.reshape(values, [-1]), minlength=256, maxlength=256)
        step = (tf.size(values) - counts[tf.reduce_max(values)]) // 255
        table = (tf.cumsum(counts, exclusive=True) + step // 2) // tf.maximum(step, 1)
        table = tf.where(step > 0, tf.clip_by_value(table, 0, 255), tf.range(256))
        return tf.gather(table, values)

    channels = [channel(values) for values in tf.unstack(tf.cast(image, tf.int32), axis=2)]
    return tf.cast(tf.stack(channels, axis=2), tf.uint8)


def _invert(image, at, sign, place):
    return 255 - image


def _rotate(image, at, sign, place):
    angle = sign * (at.rotate * math.pi / 180)
    cos, sin = tf.cos(angle), tf.sin(angle)
    bottom, right = (tf.cast(tf.shape(image)[k] - 1, tf.float32) for k in (0, 1))
    x = (right - (cos * right - sin * bottom)) / 2
    y = (bottom - (sin * right + cos * bottom)) / 2
    return _transform(image, [cos, -sin, x, sin, cos, y])


def _posterize(image, at, sign, place):
    shift = 8 - at.posterize_bits
    shift = shift if 0 <= shift <= 7 else 7
    return tf.bitwise.left_shift(
        tf.bitwise.right_shift(image, tf.constant(shift, tf.uint8)), tf.constant(shift, tf.uint8)
    )


def _solarize(image, at, sign, place):
    return tf.where(image < at.solarize_threshold % 256, image, 255 - image)


def _solarize_add(image, at, sign, place):
    added = tf.minimum(tf.cast(image, tf.int32) + at.solarize_add, 255)
    return tf.where(image < 128, tf.cast(added, tf.uint8), image)


def _color(image, at, sign, place):
    gray = tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))
    return _blend(gray, image, at.enhance)


def _contrast(image, at, sign, place):
    pixels = tf.cast(tf.shape(image)[0] * tf.shape(image)[1], tf.float32)
    level = tf.floor(tf.minimum(pixels / 256.0, 255.0))
    return _blend(tf.fill(tf.shape(image), level), image, at.enhance)


def _brightness(image, at, sign, place):
    return _blend(tf.zeros_like(image), image, at.enhance)


def _sharpness(image, at, sign, place):
    kernel = tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32) / 13.0
    kernel = tf.tile(kernel[:, :, None, None], [1, 1, 3, 1])
    smooth = tf.nn.depthwise_conv2d(
        tf.cast(image, tf.float32)[None], kernel, [1, 1, 1, 1], padding="VALID"
    )[0]
    smooth = tf.cast(tf.clip_by_value(smooth, 0.0, 255.0), tf.uint8)
    border = [[1, 1], [1, 1], [0, 0]]
    inside = tf.pad(tf.ones_like(smooth, tf.bool), border)
    return _blend(tf.where(inside, tf.pad(smooth, border), image), image, at.enhance)


def _shear_x(image, at, sign, place):
    return _transform(image, [1.0, sign * at.shear, 0.0, 0.0, 1.0, 0.0])


def _shear_y(image, at, sign, place):
    return _transform(image, [1.0, 0.0, 0.0, sign * at.shear, 1.0, 0.0])


def _translate_x(image, at, sign, place):
    return _transform(image, [1.0, 0.0, sign * at.translate, 0.0, 1.0, 0.0])


def _translate_y(image, at, sign, place):
    return _transform(image, [1.0, 0.0, 0.0, 0.0, 1.0, sign * at.translate])


def _cutout(image, at, sign, place):
    height, width = tf.shape(image)[0], tf.shape(image)[1]
    row = tf.cast(place[0] * tf.cast(height, tf.float32), tf.int32)
    column = tf.cast(place[1] * tf.cast(width, tf.float32), tf.int32)
    rows, columns = tf.range(height)[:, None, None], tf.range(width)[None, :, None]
    inside = (
        (rows >= row - at.cutout)
        & (rows < row + at.cutout)
        & (columns >= column - at.cutout)
        & (columns < column + at.cutout)
    )
    return tf.where(inside, tf.constant(_FILL, tf.uint8), image)


# Every operation takes (image, strengths, a random sign, two random numbers in 0..1).
OPERATIONS = {
    "AutoContrast": _autocontrast,
    "Equalize": _equalize,
    "Invert": _invert,
    "Rotate": _rotate,
    "Posterize": _posterize,
    "Solarize": _solarize,
    "Color": _color,
    "Contrast": _contrast,
    "Brightness": _brightness,
    "Sharpness": _sharpness,
    "ShearX": _shear_x,
    "ShearY": _shear_y,
    "TranslateX": _translate_x,
    "TranslateY": _translate_y,
    "Cutout": _cutout,
    "SolarizeAdd": _solarize_add,
}
