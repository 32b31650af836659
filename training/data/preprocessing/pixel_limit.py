"""The limit of the pixels of an image, looked up in its header before anything is decoded."""

import tensorflow as tf

from training.data.preprocessing.gif_pixels import gif_pixels
from training.data.require_in_graph import require
from training.data.tracing import traced_once

# An image larger than this is an error of its file or of the operations, not a photograph: without
# a limit, resize_small of a 1×5000 image would ask for gigabytes.
MAX_PIXELS = 1 << 27
# Bytes in which the formats looked up here say their size.
_HEADER = 26


def within_pixel_limit(encoded: tf.Tensor) -> tf.Tensor:
    """Returns `encoded`, the bytes of an image, if that has at most `MAX_PIXELS`.

    A file of a few kilobytes may claim gigabytes, which decoders take before they read on. All
    images of a GIF count, as its decoder reads them all. Works in graphs and eagerly.

    Args:
        encoded: string scalar; a JPEG, PNG, GIF or BMP.

    Raises:
        tf.errors.InvalidArgumentError: for more pixels. What is no image is left to the decoder.
    """
    sizes = _sizes(encoded)
    pixels = tf.abs(sizes[0]) * tf.abs(sizes[1])
    message = f"Expected an image of at most {MAX_PIXELS} pixels. Received one of this size:"
    with tf.control_dependencies([require(pixels <= MAX_PIXELS, message, sizes)]):
        return tf.identity(encoded)


@traced_once(tf.TensorSpec((), tf.string))
def _sizes(encoded):
    return tf.cond(tf.io.is_jpeg(encoded), lambda: _jpeg(encoded), lambda: _other(encoded))


def _jpeg(encoded):
    return tf.cast(tf.io.extract_jpeg_shape(encoded)[:2], tf.int64)


@traced_once(tf.TensorSpec((), tf.string), inline=False)
def _other(encoded):
    """Returns (width, height) of a PNG or BMP, (pixels, 1) of a GIF, zeros of anything else."""
    # Zeros after what is cut short: TensorFlow's own error of that holds bytes, which Python cannot
    # read as text.
    head = tf.strings.join([tf.strings.substr(encoded, 0, _HEADER), bytes(_HEADER)])
    start = tf.strings.substr(head, 0, 4)
    return tf.case(
        [
            (start == b"\x89PNG", lambda: _integers(head, 16, tf.int32, little_endian=False)),
            (start == b"GIF8", lambda: tf.stack([gif_pixels(encoded), 1])),
            (tf.strings.substr(start, 0, 2) == b"BM", lambda: _integers(head, 18, tf.int32)),
        ],
        lambda: tf.zeros(2, tf.int64),
    )


def _integers(encoded, place, dtype, little_endian=True):
    """Returns the two integers that begin at a place of the bytes, as int64."""
    both = tf.strings.substr(encoded, place, 2 * dtype.size)
    sizes = tf.cast(tf.io.decode_raw(both, dtype, little_endian=little_endian), tf.int64)
    return tf.ensure_shape(sizes, 2)
