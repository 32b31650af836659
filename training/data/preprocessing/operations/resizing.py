"""Resizing: bilinear with half-pixel centers and without anti-aliasing, as in the original.

`method` and `antialias` say otherwise. Images become float32, in the range that they had.
"""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from training.data import require_in_graph
from training.data.preprocessing.operation import operation
from training.data.preprocessing.pixel_limit import MAX_PIXELS


@dataclasses.dataclass(frozen=True)
class Resizing:
    """Resizes images, each to a size that follows from its own.

    Attributes:
        size_of: maps an image's shape, int32 (3,), to the new (height, width).
        method: as in `tf.image.resize`.
        antialias: whether to smooth what is made smaller.
    """

    size_of: Callable[[tf.Tensor], tuple[int, int] | tf.Tensor]
    method: str
    antialias: bool

    def __call__(self, image: tf.Tensor) -> tf.Tensor:
        """Returns the image at its new size, float32."""
        return resized(image, self.size_of(tf.shape(image)), self.method, self.antialias)


@operation("resize")
def resize(
    size: int | Sequence[int], method: str = "bilinear", antialias: bool = False
) -> Resizing:
    """Resizes to `size` (one number or (height, width)), not keeping the aspect; float32."""
    shape = height_and_width(size)
    return Resizing(lambda _: shape, method, antialias)


@operation("resize_small")
def resize_small(size: int, method: str = "area", antialias: bool = False) -> Resizing:
    """Resizes so that the smaller side is `size`, keeping the aspect; float32."""

    def size_of(shape):
        height, width = (tf.cast(shape[k], tf.float32) for k in (0, 1))
        factor = tf.cast(size, tf.float32) / tf.minimum(height, width)
        # In float32: an extreme aspect must be refused, not wrap around as an integer.
        new_h, new_w = tf.round(height * factor), tf.round(width * factor)
        require_in_graph.require(
            new_h * new_w <= MAX_PIXELS,
            f"resize_small({size}) of an image of this height and width would exceed "
            f"{MAX_PIXELS} pixels:",
            shape,
        )
        return tf.cast(tf.stack([new_h, new_w]), tf.int32)

    return Resizing(size_of, method, antialias)


def height_and_width(size: int | Sequence[int]) -> tuple[int, int]:
    """Returns (height, width) of a size as texts give it, one number or two."""
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise ValueError(f"an image has at least one pixel, not {size}")
    return int(height), int(width)


def to_float32(image: tf.Tensor) -> tf.Tensor:
    """Returns the image with the same values, float32."""
    return tf.cast(image, tf.float32)


def resized(
    image: tf.Tensor,
    shape: tuple[int, int] | tf.Tensor,
    method: str = "bilinear",
    antialias: bool = False,
    convert: Callable[[tf.Tensor], tf.Tensor] = to_float32,
) -> tf.Tensor:
    """Returns `convert(image)` at another size, float32.

    Args:
        image: (height, width, channels), uint8 or float32.
        shape: the new (height, width).
        method: as in `tf.image.resize`.
        antialias: whether to smooth what is made smaller.
        convert: an affine function of the values that gives float32; it is applied on the side
            of the resize where it costs less.
    """

    def resize_only(image):
        return to_float32(tf.image.resize(image, shape, method, antialias=antialias))

    if image.dtype != tf.uint8 or method != "bilinear" or antialias:
        return convert(resize_only(image))
    # TensorFlow resizes float32 with vector instructions and uint8 without, to the same bits.
    # Converting pays unless the image is so large that most of its pixels are skipped.
    return tf.cond(
        tf.size(image) <= 4 * shape[0] * shape[1] * (image.shape[2] or 3),
        lambda: resize_only(convert(image)),
        lambda: convert(resize_only(image)),
    )
