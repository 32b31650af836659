"""Cropping: at random as the original and torchvision do, at a random place, or the center."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from training.data import require_in_graph
from training.data.preprocessing.operation import operation
from training.data.preprocessing.operations.resizing import height_and_width, resized, to_float32


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop:
    """Cuts a random box out of an image and resizes it.

    Attributes:
        box: maps an image's shape, int32 (3,), and a seed to (top, left, height, width), int32.
        shape: (height, width) to resize to, or None to leave the size as it is.
    """

    box: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    shape: tuple[int, int] | None

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the crop of `image`, resized."""
        return self.resize(self.cut(image, seed))

    def cut(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the crop in its own size."""
        top, left, height, width = tf.unstack(self.box(tf.shape(image), seed))
        return tf.slice(image, [top, left, 0], [height, width, image.shape[2] or -1])

    def resize(
        self, crop: tf.Tensor, convert: Callable[[tf.Tensor], tf.Tensor] | None = None
    ) -> tf.Tensor:
        """Returns the crop resized and, if `convert` is given, converted; see `resized`."""
        if self.shape:
            return resized(crop, self.shape, convert=convert or to_float32)
        return convert(crop) if convert else crop


@operation("inception_crop")
def inception_crop(
    size: int | Sequence[int],
    area_min: float = 0.05,
    area_max: float = 1.0,
    resize: bool = True,
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


@operation("random_resized_crop")
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
        height, width = (tf.cast(image_shape[k], tf.float32) for k in (0, 1))
        uniform = tf.random.stateless_uniform((4, attempts), seed)
        area = height * width * (scale[0] + uniform[0] * (scale[1] - scale[0]))
        low, high = tf.math.log(ratio[0]), tf.math.log(ratio[1])
        aspect = tf.exp(low + uniform[1] * (high - low))
        crop_h, crop_w = tf.round(tf.sqrt(area / aspect)), tf.round(tf.sqrt(area * aspect))
        fits = (crop_h >= 1) & (crop_w >= 1) & (crop_h <= height) & (crop_w <= width)

        def sampled():
            first = tf.argmax(tf.cast(fits, tf.int32))
            h, w = crop_h[first], crop_w[first]
            top = tf.floor(uniform[2][first] * (height - h + 1))
            left = tf.floor(uniform[3][first] * (width - w + 1))
            return tf.stack([top, left, h, w])

        def central():
            h = tf.maximum(1.0, tf.minimum(height, tf.round(width / ratio[0])))
            w = tf.maximum(1.0, tf.minimum(width, tf.round(height * ratio[1])))
            return tf.stack([(height - h) // 2, (width - w) // 2, h, w])

        return tf.cast(tf.cond(tf.reduce_any(fits), sampled, central), tf.int32)

    return RandomResizedCrop(box, height_and_width(size))


@operation("random_crop")
def random_crop(size: int | Sequence[int]) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Crops `size` (one number or (height, width)) at a random place."""
    shape = height_and_width(size)

    def apply(image, seed):
        places = _places("random_crop", image, shape)
        uniform = tf.random.stateless_uniform((2,), seed)
        begin = tf.cast(uniform * tf.cast(places, tf.float32), tf.int32)
        # A number just below one may round up to the limit.
        begin = tf.minimum(begin, places - 1)
        return tf.image.crop_to_bounding_box(image, begin[0], begin[1], *shape)

    return apply


@operation("central_crop")
def central_crop(size: int | Sequence[int]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Crops `size` (one number or (height, width)) from the center."""
    shape = height_and_width(size)

    def apply(image):
        begin = (_places("central_crop", image, shape) - 1) // 2
        return tf.image.crop_to_bounding_box(image, begin[0], begin[1], *shape)

    return apply


def _places(name, image, shape):
    """Returns how many rows and columns a crop may begin at, int32 (2,), at least one of each."""
    places = tf.shape(image)[:2] - shape + 1
    require_in_graph.require(
        tf.reduce_all(places > 0),
        f"{name} of {shape[0]}×{shape[1]} needs an image at least that large; resize before it. "
        "Received the shape:",
        tf.shape(image),
    )
    return places
