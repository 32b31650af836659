"""The pixels of a GIF, counted along its blocks: decoders take memory for every image in it."""

import tensorflow as tf

from training.data.tracing import traced_once

_EXTENSION, _IMAGE = 0x21, 0x2C
# Bytes before the first color table, of which the last but two says how large that is.
_START = 13
# Bytes in which an image says its place, its size and its color table.
_DESCRIPTOR = 10


@traced_once(tf.TensorSpec((), tf.string), inline=False)
def gif_pixels(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the pixels of all images of a GIF, or of its screen where that is larger.

    Images need not lie on the screen. A GIF that is cut short counts as far as it goes. Works in
    graphs and eagerly.

    Args:
        encoded: string scalar, the bytes of the GIF.

    Returns:
        int64 scalar.
    """
    # Zeros, so that every block has as many bytes as are looked at.
    content = tf.io.decode_raw(tf.strings.join([encoded, bytes(_START)]), tf.uint8)
    end = tf.strings.length(encoded)
    start = tf.cast(content[:_START], tf.int64)

    def goes_on(place, within, pixels):
        return place < end

    def following(place, within, pixels):
        head = tf.cast(content[place : place + _DESCRIPTOR], tf.int64)
        is_image = ~within & (head[0] == _IMAGE)
        is_extension = ~within & (head[0] == _EXTENSION)
        length = tf.where(within, 1 + head[0], tf.cast(end, tf.int64))
        length = tf.where(is_extension, tf.constant(2, tf.int64), length)
        # After its color table, a byte begins the image's data.
        length = tf.where(is_image, _DESCRIPTOR + _color_table(head[9]) + 1, length)
        pixels += tf.where(is_image, _size(head, 5), 0)
        # Data is in parts, each after its length; one of no length ends it.
        within = tf.where(within, head[0] > 0, is_image | is_extension)
        return place + tf.cast(length, tf.int32), within, pixels

    first = tf.cast(_START + _color_table(start[10]), tf.int32)
    state = (first, tf.constant(False), tf.constant(0, tf.int64))
    _, _, pixels = tf.while_loop(goes_on, following, state)
    return tf.maximum(pixels, _size(start, 6))


def _size(numbers, place):
    width, height = (numbers[at] + 256 * numbers[at + 1] for at in (place, place + 2))
    return width * height


def _color_table(packed):
    """Returns the bytes of the color table that a byte describes."""
    return tf.where(
        packed >= 128, 3 * tf.bitwise.left_shift(tf.constant(2, tf.int64), packed % 8), 0
    )
