"""Operations that move pixels: resizing, cropping, flips and shifts.

Segmenter trains with `resize_between`, `varied_crop` and `pad_to`, as mmsegmentation has them.

Resizing is bilinear with half-pixel centers and without anti-aliasing, as in the original, unless
`method` and `antialias`, those of `tf.image.resize`, say otherwise. The range stays what it was.
Maps of classes, int32, take the nearest pixel.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_vit.photos.operations_text import MAX_PIXELS, height_and_width

from ..traced_functions import require
from .parse_operations import NO_CLASS, Example, operation

# Crops that are drawn, the last of which is taken as it is; and what stored maps have for no class.
_DRAWS, _IGNORED = 11, 255


class Resizing(NamedTuple):
    """Resizes images. `size_of` maps an image's shape, int32 (3,), to its new (height, width)."""

    size_of: Callable[[tf.Tensor], tuple[int, int] | tf.Tensor]
    method: str
    antialias: bool

    def __call__(self, image: tf.Tensor) -> tf.Tensor:
        """Returns the image at its new size, float32."""
        return resized(image, self.size_of(tf.shape(image)), self.method, self.antialias)


@operation("resize", stage="geometry")
def resize(
    size: int | Sequence[int], method: str = "bilinear", antialias: bool = False
) -> Resizing:
    """Resizes to `size` (one number or (height, width)), not keeping the aspect; float32."""
    shape = height_and_width(size)
    return Resizing(lambda _: shape, method, antialias)


@operation("resize_small", stage="geometry")
def resize_small(size: int, method: str = "area", antialias: bool = False) -> Resizing:
    """Resizes so that the smaller side is `size`, keeping the aspect; float32."""

    height_and_width(size)

    def size_of(shape):
        old = tf.cast(shape[:2], tf.float32)
        # In float32: an extreme aspect must be refused, not wrap around as an integer.
        new = tf.round(old * (tf.cast(size, tf.float32) / tf.reduce_min(old)))
        message = f"resize_small({size}) of an image of this height and width would exceed"
        require(tf.reduce_prod(new) <= MAX_PIXELS, f"{message} {MAX_PIXELS} pixels:", shape)
        return tf.cast(new, tf.int32)

    return Resizing(size_of, method, antialias)


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


class RandomResizedCrop(NamedTuple):
    """Cuts a random box out of an image and resizes it."""

    # Maps an image's shape, int32 (3,), and a seed to (top, left, height, width), int32.
    box: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    shape: tuple[int, int] | None  # (height, width) to resize to; None leaves the size as it is

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the crop of `image`, resized."""
        return self.resize(cut(image, self.box(tf.shape(image), seed)))

    def size_of(self, shape: tf.Tensor) -> tuple[int, int] | None:
        """Returns `shape` of the crop, of an image of any shape."""
        return self.shape

    def resize(self, crop: tf.Tensor, convert: Callable | None = None) -> tf.Tensor:
        """Returns the crop resized and, if given, converted by an affine function to float32."""
        if self.shape:
            return resized(crop, self.shape, convert=convert or _to_float32)
        return convert(crop) if convert else crop


@operation("inception_crop", stage="geometry")
def inception_crop(
    size: int | Sequence[int], area_min: float = 0.05, area_max: float = 1.0, resize: bool = True
) -> RandomResizedCrop:
    """The training crop of the original: random area and aspect, resized to `size`.

    The area is 5 to 100 % of the image, the aspect ratio uniform in 0.75..1.33, and the height
    uniform given the aspect, so small crops are favored; after 100 failures the whole image.
    """
    shape = height_and_width(size)

    def box(image_shape, seed):
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            image_shape,
            tf.zeros((0, 0, 4), tf.float32),
            seed=seed,
            min_object_covered=0.0,
            aspect_ratio_range=(0.75, 1.33),
            area_range=(area_min, area_max),
            max_attempts=100,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], extent[:2]], axis=0)

    return RandomResizedCrop(box, shape if resize else None)


@operation("random_resized_crop", stage="geometry")
def random_resized_crop(
    size: int | Sequence[int],
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    attempts: int = 10,
) -> RandomResizedCrop:
    """torchvision's training crop: area uniform in `scale`, aspect log-uniform in `ratio`.

    After `attempts` failures, the largest central crop whose aspect lies in `ratio`.
    """

    def box(image_shape, seed):
        whole = tf.cast(image_shape[:2], tf.float32)
        uniform = tf.random.stateless_uniform((4, attempts), seed)
        area = whole[0] * whole[1] * (scale[0] + uniform[0] * (scale[1] - scale[0]))
        low, high = tf.math.log(ratio[0]), tf.math.log(ratio[1])
        aspect = tf.exp(low + uniform[1] * (high - low))
        sizes = tf.round(tf.sqrt(tf.stack([area / aspect, area * aspect], axis=1)))
        fits = tf.reduce_all((sizes >= 1) & (sizes <= whole), axis=1)
        first = tf.argmax(tf.cast(fits, tf.int32))
        largest = tf.round(tf.stack([whole[1] / ratio[0], whole[0] * ratio[1]]))
        largest = tf.maximum(1.0, tf.minimum(whole, largest))
        size = tf.where(tf.reduce_any(fits), sizes[first], largest)
        begin = tf.floor(uniform[2:, first] * (whole - size + 1))
        begin = tf.where(tf.reduce_any(fits), begin, (whole - size) // 2)
        return tf.cast(tf.concat([begin, size], axis=0), tf.int32)

    return RandomResizedCrop(box, height_and_width(size))


@operation("random_crop", stage="geometry")
def random_crop(size: int | Sequence[int]) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Crops `size` (one number or (height, width)) at a random place."""
    shape = height_and_width(size)
    return lambda image, seed: _cropped("random_crop", image, shape, seed)


@operation("central_crop", stage="geometry")
def central_crop(size: int | Sequence[int]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Crops `size` (one number or (height, width)) from the center."""
    shape = height_and_width(size)
    return lambda image: _cropped("central_crop", image, shape)


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
        begins = _begins(tf.random.stateless_uniform((_DRAWS, 2), seed), shape - extent)
        windows = tf.concat([begins, tf.tile(extent[None], [_DRAWS, 1])], axis=1)
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


@operation("flip_lr", stage="geometry")
def flip_lr(probability: float = 0.5) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Mirrors the image left to right with `probability`."""

    def apply(image, seed):
        flip = tf.random.stateless_uniform((), seed) < probability
        return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)

    return apply


@operation("pad", stage="geometry")
def pad(pixels: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Adds `pixels` pixels of 0 on every side, which are black before `value_range`."""

    return lambda image: _padded(image, [[pixels, pixels]] * 2)


@operation("pad_to", stage="geometry")
def pad_to(size: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Fills the image up to `size` below and right, with 0: the mean color after `value_range`."""
    shape = height_and_width(size)

    def apply(image):
        missing = shape - tf.shape(image)[:2]
        message = f"pad_to({size}) needs an image at most that large; crop before it. Received:"
        require(tf.reduce_all(missing >= 0), message, tf.shape(image))
        padded = _padded(image, [[0, missing[0]], [0, missing[1]]])
        return tf.ensure_shape(padded, (*shape, image.shape[2]))

    return apply


@operation("random_shift", stage="geometry")
def random_shift(pixels: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Moves the image by up to `pixels` pixels each way; 0 comes in, black before `value_range`."""

    def apply(image, seed):
        offset = tf.random.stateless_uniform((2,), seed, 0, 2 * pixels + 1, dtype=tf.int32)
        shifted = tf.slice(pad(pixels)(image), [offset[0], offset[1], 0], tf.shape(image))
        return tf.ensure_shape(shifted, image.shape)

    return apply


@operation("bit_train", stage="text")
def bit_train(height: int, width: int, flip: bool = True) -> str:
    """BiT's training transform for images of about `height`×`width`: square resize, crop, flip.

    Leave the flip out where it changes the label. (BiT's TensorFlow code flips every training
    image and no test image, an oversight that is not followed here.)
    """
    size, crop = _bit_resolution(height, width)
    return f"resize({size})|random_crop({crop})" + ("|flip_lr" if flip else "")


@operation("bit_eval", stage="text")
def bit_eval(height: int, width: int) -> str:
    """BiT's evaluation transform: a square resize to the size of the training crop."""
    return f"resize({_bit_resolution(height, width)[1]})"


def _bit_resolution(height, width):
    """Returns (resize, crop) of BiT-HyperRule (Kolesnikov et al., 2020) as in the released code."""
    # The paper's text has 448 and 384 for large images of all but its largest models.
    return (160, 128) if height * width < 96 * 96 else (512, 480)


def size_between(shape: Any, short: Any, long: Any) -> tf.Tensor:
    """Returns the largest (height, width) within `short` and `long` sides, int32; same aspect."""
    old = tf.cast(shape[:2], tf.float64)
    short, long = (tf.cast(side, tf.float64) for side in (short, long))
    factor = tf.minimum(long / tf.reduce_max(old), short / tf.reduce_min(old))
    return tf.cast(old * factor + 0.5, tf.int32)


def cut(image: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    """Returns `window`, int32 (top, left, height, width), of an image (height, width, channels)."""
    top, left, height, width = tf.unstack(window)
    return tf.slice(image, [top, left, 0], [height, width, image.shape[2] or -1])


def _cropped(name, image, shape, seed=None):
    """Returns a crop from the center or, with a seed, at a random place."""
    limit = tf.shape(image)[:2] - shape
    message = f"{name} of {shape[0]}×{shape[1]} needs an image at least that large; resize before"
    require(tf.reduce_all(limit >= 0), f"{message} it. Received the shape:", tf.shape(image))
    begin = limit // 2
    if seed is not None:
        begin = _begins(tf.random.stateless_uniform((2,), seed), limit)
    return tf.image.crop_to_bounding_box(image, begin[0], begin[1], *shape)


def _padded(image, paddings):
    outside = NO_CLASS if image.dtype == tf.int32 else 0
    return tf.pad(image, [*paddings, [0, 0]], constant_values=outside)


def _begins(uniform, limit):
    """Returns where crops begin, int32, of numbers in [0, 1)."""
    # A number just below one may round up beyond the limit.
    return tf.minimum(tf.cast(uniform * tf.cast(limit + 1, tf.float32), tf.int32), limit)


def _to_float32(image):
    return tf.cast(image, tf.float32)


def resized(
    image: tf.Tensor,
    shape: tf.Tensor | tuple[int, int],
    method: str = "bilinear",
    antialias: bool = False,
    convert: Callable[[tf.Tensor], tf.Tensor] = _to_float32,
) -> tf.Tensor:
    """Returns `convert(image)`, float32, at another (height, width); `convert` is affine.

    Of a map of classes the nearest, int32.
    """

    def resize_only(image):
        return _to_float32(tf.image.resize(image, shape, method, antialias=antialias))

    if image.dtype == tf.int32:
        return tf.image.resize(image, shape, "nearest")
    if image.dtype != tf.uint8 or method != "bilinear" or antialias:
        return convert(resize_only(image))
    # TensorFlow resizes float32 with vector instructions and uint8 without, to the same bits.
    # Converting pays unless the image is so large that most of its pixels are skipped.
    return tf.cond(
        tf.size(image) <= 4 * shape[0] * shape[1] * (image.shape[2] or 3),
        lambda: resize_only(convert(image)),
        lambda: convert(resize_only(image)),
    )
