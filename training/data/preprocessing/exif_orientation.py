"""The EXIF orientation of encoded photos, read and applied in a TensorFlow graph.

A camera that is held on its side stores the photo as its sensor has it, and beside it a number
from 1 to 8 that says how to turn it.
"""

import tensorflow as tf

from training.data.tracing import traced_once

# Where EXIF stands in the files of cameras, phones and editors: in a segment near the beginning.
_SEARCHED = 1200
# The directory of TIFF fields that follows: a count, then 12 bytes each. Field 0x112, one number
# of 16 bits, is the orientation; its bytes come in one of two orders.
_FIELDS = r"\C{2}(?:\C{12}){0,60}?"
_PATTERN = (
    r"(?s)^\C{2,200}?(?:Exif\x00\x00|eXIf)(?:"
    rf"II\*\x00\x08\x00\x00\x00{_FIELDS}\x12\x01\x03\x00\x01\x00\x00\x00([\x01-\x08])\x00|"
    rf"MM\x00\*\x00\x00\x00\x08{_FIELDS}\x01\x12\x00\x03\x00\x00\x00\x01\x00([\x01-\x08])"
    r")\C*$"
)
_TRANSPOSED, _ROWS_REVERSED, _COLUMNS_REVERSED = (5, 6, 7, 8), (3, 4, 7, 8), (2, 3, 6, 7)


@traced_once(tf.TensorSpec((), tf.string))
def exif_orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the orientation of the JPEG or PNG in a string scalar, int32; 1 where it has none."""
    head = tf.strings.substr(encoded, 0, _SEARCHED)
    # The one byte in parentheses, or all of it where there is no match.
    found = tf.strings.regex_replace(head, _PATTERN, r"\1\2")
    first = tf.io.decode_raw(tf.strings.substr(found, 0, 1), tf.uint8)
    is_found = (tf.strings.length(found) == 1) & (tf.strings.length(head) > 1)
    return tf.where(is_found, tf.cast(tf.reduce_sum(first), tf.int32), 1)


def turned_upright(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns a photo as it was seen.

    Args:
        image: uint8 (height, width, channels).
        orientation: int32 scalar, 1 to 8.
    """
    # Nearly every photo is stored as it was seen: one question for it, and not three.
    turned = tf.cond(orientation == 1, lambda: image, lambda: _turned_upright(image, orientation))
    return tf.ensure_shape(turned, (None, None, image.shape[2]))


@traced_once(tf.TensorSpec((None, None, None), tf.uint8), tf.TensorSpec((), tf.int32))
def _turned_upright(image, orientation):
    def turned(image, numbers, turn):
        wanted = tf.reduce_any(orientation == tf.constant(numbers))
        return tf.cond(wanted, lambda: turn(image), lambda: image)

    image = turned(image, _TRANSPOSED, lambda image: tf.transpose(image, (1, 0, 2)))
    image = turned(image, _ROWS_REVERSED, lambda image: image[::-1])
    return turned(image, _COLUMNS_REVERSED, lambda image: image[:, ::-1])
