"""Flips and shifts: the pixels of an image at other places."""

from collections.abc import Callable

import tensorflow as tf

from training.data.preprocessing.operation import operation


@operation("flip_lr")
class FlipLeftRight:
    """Mirrors the image left to right with `probability`."""

    def __init__(self, probability: float = 0.5):
        self._probability = probability

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the image or its mirror image."""
        flip = tf.random.stateless_uniform((), seed) < self._probability
        return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)


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
