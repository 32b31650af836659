"""Decoding: encoded bytes to images, (height, width, channels) uint8 in 0..255.

TensorFlow decodes JPEG and PNG, Pillow every other image, in `keras_vit.photos.prepare_photos`.
"""

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.photos.operations_text import MAX_PIXELS
from keras_vit.photos.prepare_photos import read_orientation, read_photo

from ..traced_functions import require, traced_once
from .geometry import cut
from .parse_operations import operation

# A JPEG with EXIF or XMP contains the first, a PNG the second, from the chunk's type on. The first
# letter is fixed, so that the search is as fast as `memchr`.
_JPEG_WITH_EXIF = r"x(?:if\x00\x00|ap/1\.0/\x00)"
_PNG_WITH_EXIF = r"X(?:If|t(?:exif|Raw profile type exif|XML:com\.adobe\.xmp))"
_EXIF, _PNG_EXIF = b"Exif\0\0", b"eXIf"
_XMP, _PNG_XMP = b"http://ns.adobe.com/xap/1.0/\0", b"iTXtXML:com.adobe.xmp\0\0"
_XMP_ORIENTATION = r"(?s)^\C*?tiff:Orientation(?:=\"|>)([0-9])\C*$"
_ORIENTATION = 0x112
# A crafted file has millions.
_MAX_SEGMENTS = 4096

# A BMP has these for 32 bits that are blue, green, red and another byte, as TensorFlow takes
# them: no compression, or this one with masks of red, green and blue.
_MASKED, _MASKS = 3, b"\0\0\xff\0\0\xff\0\0\xff\0\0\0"

# A function of an image's shape, int32 (3,).
_OfShape = Callable[[tf.Tensor], Any]


@operation("decode")
class Decode:
    """JPEG, PNG, or whatever else Pillow reads, to uint8 (height, width, channels).

    Gray, palette and CMYK become RGB; of 16 bits the upper 8 are kept; transparency is dropped; of
    an animation the first frame is taken. Of an image that is stored as an array the
    channels alone change.

    Args:
        channels: 3, or 1 for grayscale.
        precise: decode JPEGs with the accurate inverse DCT, bit for bit as PIL does. The
            default is the fast one, TensorFlow's own, with which the published models trained.
        upright: turn photos as their EXIF orientation says.

    Attributes:
        upright: the argument; `Preprocess` clears it for data sets that are read as stored.
        graph_only: whether all must be operations of TensorFlow, as in a saved module. Then
            TensorFlow reads GIF, BMP without compression and, from 2.20 on, WebP; others fail.
        reduced: 0, or how many times the rows and columns to which it is resized a JPEG keeps at
            least that is decoded at a fraction of its size. It holds the frequencies of blocks of
            8×8 pixels; of the lowest, 4×4, 2×2 or 1×1 pixels are made in a fraction of the time.
    """

    def __init__(self, channels: int = 3, precise: bool = False, upright: bool = True):
        if channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, not {channels!r}")
        self.upright = upright
        self.graph_only = False
        self.reduced = 0.0
        self._channels = channels
        method = "INTEGER_ACCURATE" if precise else "INTEGER_FAST"
        self._jpeg_options = {"channels": channels, "dct_method": method}
        specs = tf.TensorSpec((), tf.string), tf.TensorSpec((), tf.int32)
        self._other_in_graphs = traced_once(*specs, inline=False)(self._other)

    def __call__(
        self, image: tf.Tensor, window_of: _OfShape | None = None, size_of: _OfShape | None = None
    ) -> tf.Tensor:
        """Returns the image that a string scalar encodes, or a window of it.

        `window_of` gives (top, left, height, width), int32: no more of a JPEG is decoded. `size_of`
        gives the (height, width) to which the result is resized, or None.

        Raises:
            InvalidArgumentError: for what is no image, or has more than `MAX_PIXELS`, which its
                header says. Eagerly, Pillow's are `ValueError`.
        """

        def in_window(decoded):
            return cut(decoded, window_of(tf.shape(decoded))) if window_of else decoded

        if image.dtype != tf.string:
            if image.dtype != tf.uint8:
                raise ValueError(
                    "Expected images that are encoded, or arrays of uint8 in 0..255. Received: "
                    f"arrays of {image.dtype.name}."
                )
            return in_window(_with_channels(image, self._channels))
        is_jpeg = tf.io.is_jpeg(image)
        orientation = self._orientation(image, is_jpeg) if self.upright else tf.constant(1)

        def upright_jpeg():
            shape = tf.io.extract_jpeg_shape(image)
            window = window_of(shape) if window_of else None
            decode = partial(self._jpeg, _within_limit(image, shape[:2]), window)
            target = size_of(shape) if size_of and self.reduced else None
            if target is None:
                return decode(1)
            size = shape[:2] if window is None else window[2:]
            return _reduced(decode, size, tf.convert_to_tensor(target), self.reduced)

        def other():
            # Eagerly, Python's errors stay what they are.
            decode = self._other if tf.executing_eagerly() else self._other_in_graphs
            return in_window(decode(image, orientation))

        def turned_jpeg():
            shape, is_swapped = tf.io.extract_jpeg_shape(image), orientation > 4
            seen = tf.gather(shape, tf.where(is_swapped, (1, 0, 2), (0, 1, 2)))
            if (target := size_of(seen)) is None:
                return other()
            target = tf.where(is_swapped, target[::-1], target)
            decode = partial(self._jpeg, _within_limit(image, shape[:2]), None)
            found = _turned(_reduced(decode, shape[:2], target, self.reduced), orientation)
            return tf.ensure_shape(found, (None, None, self._channels))

        turns = bool(self.reduced and size_of) and window_of is None
        stored = partial(tf.cond, is_jpeg, turned_jpeg, other) if turns else other
        return tf.cond(is_jpeg & (orientation == 1), upright_jpeg, stored)

    def _orientation(self, image, is_jpeg):
        """Returns the orientation, int32 from 1 to 8, of pixels that TensorFlow decodes."""

        if self.graph_only:
            return _orientation_in_graph(image)

        # Pillow turns other photos itself.
        has_exif = is_jpeg & _contains(image, _JPEG_WITH_EXIF)
        return tf.cond(has_exif, lambda: _orientation_of_jpeg(image), lambda: 1)

    def _jpeg(self, image, window, ratio):
        if window is None:
            return tf.io.decode_jpeg(image, ratio=ratio, **self._jpeg_options)
        if ratio > 1:
            # Each side is divided by the ratio and rounded, halves up.
            sides = window[:2], window[:2] + window[2:]
            begin, end = ((side + ratio // 2) // ratio for side in sides)
            window = tf.concat([begin, end - begin], axis=0)
        return tf.io.decode_and_crop_jpeg(image, window, ratio=ratio, **self._jpeg_options)

    def _other(self, image, orientation):
        """Decodes a JPEG that is to be turned, or another format."""
        # Zeros after what is cut short: TensorFlow's own error of that holds bytes, which Python
        # cannot read as text.
        head = tf.strings.join([tf.strings.substr(image, 0, 1078), bytes(1078)])
        is_png = tf.strings.substr(head, 0, 4) == b"\x89PNG"

        def png():
            size = tf.io.decode_raw(tf.strings.substr(head, 16, 8), tf.int32, little_endian=False)
            found = tf.io.decode_png(_within_limit(image, size), channels=self._channels)
            return _turned(found, orientation)

        def jpeg():
            size = tf.io.extract_jpeg_shape(image)[:2]
            return _turned(self._jpeg(_within_limit(image, size), None, 1), orientation)

        def rest():
            rgb = _gif_or_bmp(head, image) if self.graph_only else self._by_pillow(image)
            return _with_channels(rgb, self._channels)

        if not self.graph_only:
            is_png &= tf.strings.substr(head, 24, 1) != b"\x10"
            if self.upright:
                is_png &= ~_contains(image, _PNG_WITH_EXIF)
        decoded = tf.case([(is_png, png), (tf.io.is_jpeg(image), jpeg)], rest)
        return tf.ensure_shape(decoded, (None, None, self._channels))

    def _by_pillow(self, image):
        def read(content):
            # Here, as it brings Keras, which reading data needs for nothing else.
            # Bytes in a graph, and an array of them outside of one.
            return read_photo(io.BytesIO(np.asarray(content, object).item()), self.upright)

        decoded = tf.numpy_function(read, [image], tf.uint8, stateful=False)
        return tf.ensure_shape(decoded, (None, None, 3))


def _gif_or_bmp(head, encoded):
    """Decodes a BMP with a palette here, and by TensorFlow other BMPs, GIFs and WebP.

    TensorFlow takes the numbers of a palette's colors for grays, and compressed pixels for colors.
    """

    def number(at, dtype=tf.int32):
        found = tf.io.decode_raw(tf.strings.substr(head, at, dtype.size), dtype)[0]
        return tf.cast(found, tf.int32)

    is_bmp, is_old = tf.strings.substr(head, 0, 2) == b"BM", number(14) == 12
    width, height, bits = (
        tf.where(is_old, number(old, tf.uint16), new)
        for old, new in ((18, number(18)), (20, number(22)), (24, number(28, tf.uint16)))
    )
    has_palette, compression = is_bmp & (bits <= 8), tf.where(is_old, 0, number(30))
    is_masked = (compression == _MASKED) & (tf.strings.substr(head, 54, 12) == _MASKS)
    is_plain = (compression == 0) | (is_masked & (bits == 32))
    is_right = tf.where(has_palette, compression == 0, is_plain & ~is_old & (bits >= 24))
    message = "Expected a BMP of 1, 4, 8, 24 or 32 bits without compression. Received (bits, it):"

    def by_palette():
        size = tf.where(is_old, 3, 4)
        is_full = is_old | (number(46) <= 0) | (number(46) > 256)
        count = tf.where(is_full, tf.bitwise.left_shift(1, bits), number(46))
        palette = tf.strings.substr(encoded, 14 + number(14), size * count)
        palette = tf.io.decode_raw(palette, tf.uint8, fixed_length=1024)[: 256 * size]
        row, rows = (width * bits + 31) // 32 * 4, tf.abs(height)
        pixels = tf.strings.substr(_within_limit(encoded, [rows, width]), number(10), row * rows)
        pixels = tf.cast(tf.reshape(tf.io.decode_raw(pixels, tf.uint8), (rows, row, 1)), tf.int32)
        pixels = tf.bitwise.right_shift(pixels, tf.range(8 - bits, -1, -bits))
        pixels = tf.reshape(pixels % tf.bitwise.left_shift(1, bits), (rows, -1))[:, :width]
        image = tf.gather(tf.reshape(palette, (256, size))[:, 2::-1], pixels)
        return tf.cond(height > 0, lambda: image[::-1], lambda: image)

    with tf.control_dependencies([require(is_right | ~is_bmp, message, [bits, compression])]):
        encoded = tf.identity(encoded)
    other = partial(tf.io.decode_image, encoded, channels=3, expand_animations=False)
    return tf.ensure_shape(tf.cond(has_palette, by_palette, other), (None, None, 3))


def _with_channels(image, channels):
    if image.shape[-1] == channels or image.shape[-1] not in (1, 3):
        return image
    return (tf.image.rgb_to_grayscale if channels == 1 else tf.image.grayscale_to_rgb)(image)


def _reduced(decode, size, target, least):
    """Returns `decode(ratio)` of the largest ratio of which `size // ratio >= least * target`."""
    wanted = least * tf.cast(target, tf.float32)
    # A ratio that leaves enough pixels implies that all smaller ones do.
    enough = [tf.reduce_all(tf.cast(size // ratio, tf.float32) >= wanted) for ratio in (2, 4, 8)]
    number = tf.math.count_nonzero(enough, dtype=tf.int32)
    return tf.switch_case(number, [partial(decode, ratio) for ratio in (1, 2, 4, 8)])


def _within_limit(encoded, size):
    """Returns `encoded` if it has at most `MAX_PIXELS`, by the (height, width) in its header."""
    # A file of a few kilobytes may claim gigabytes, which decoders take before they read on.
    pixels = tf.reduce_prod(tf.abs(tf.cast(size, tf.int64)))
    message = f"Expected an image of at most {MAX_PIXELS} pixels. Received one of this size:"
    with tf.control_dependencies([require(pixels <= MAX_PIXELS, message, size)]):
        return tf.identity(encoded)


def _orientation_of_jpeg(encoded):
    """Returns the orientation of a JPEG, int32 from 1 to 8, as Pillow finds it."""

    def read(content):
        # Here, as it brings Keras.
        return np.int32(read_orientation(io.BytesIO(np.asarray(content, object).item())))

    return tf.numpy_function(read, [encoded], tf.int32, stateful=False)


def _contains(encoded, pattern):
    without = tf.strings.regex_replace(encoded, pattern, "", replace_global=False)
    return tf.strings.length(without) < tf.strings.length(encoded)


def _part(text, begin, length):
    return tf.strings.substr(text, tf.minimum(begin, tf.strings.length(text)), length)


def _words(text, begin, count, is_little=False):
    """Returns numbers of 16 bits, int32 (count,), zeros beyond the end of a text."""
    part = _part(text, begin, 2 * count)
    big, little = (
        tf.io.decode_raw(part, tf.uint16, little_endian=each, fixed_length=2 * count + 2)
        for each in (False, True)
    )
    return tf.cast(tf.where(is_little, little, big)[:count], tf.int32)


def _long(words, is_little=False):
    """Returns the number of two words, up to 2^30, which is beyond the end of every text."""
    high, low = tf.unstack(tf.where(is_little, words[::-1], words))
    return tf.where(high < 1 << 14, high * (1 << 16) + low, 1 << 30)


@traced_once(tf.TensorSpec((), tf.string), inline=False)
def _orientation_in_graph(encoded):
    """Returns the orientation of a JPEG or PNG, int32 from 1 to 8, without Python.

    As Pillow finds it, but for a PNG's compressed text.
    """
    end, is_png = tf.strings.length(encoded), tf.strings.substr(encoded, 0, 1) == b"\x89"

    def step(at, found, xmp):
        size, head = _words(encoded, at, 2), _part(encoded, at + 4, len(_XMP))
        marker = tf.where(is_png, 0, size[0])
        length = tf.where(is_png, _long(size), tf.maximum(size[1] - 2, 0))
        body = partial(_part, encoded, at + tf.where(is_png, 8, 4), length)

        def begins(jpeg, png):
            of_jpeg = (marker == 0xFFE1) & (tf.strings.substr(head, 0, len(jpeg)) == jpeg)
            return of_jpeg | (is_png & (tf.strings.substr(head, 0, len(png)) == png))

        is_exif = begins(_EXIF, _PNG_EXIF) & (found < 0)
        found = tf.cond(is_exif, lambda: _orientation_in_exif(body()), lambda: found)
        xmp = tf.cond(begins(_XMP, _PNG_XMP), body, lambda: xmp)
        after = at + length + tf.where(is_png, 12, 4)
        # In a JPEG: pixels follow, a marker stands alone, a byte is between segments.
        is_alone = (marker == 0xFF01) | ((marker >= 0xFFD0) & (marker <= 0xFFD9))
        after = tf.where(marker == 0xFFDA, end, tf.where(is_alone, at + 2, after))
        is_segment = is_png | ((marker > 0xFF00) & (marker < 0xFFFF))
        return tf.where(is_segment, after, at + 1), found, xmp

    _, found, xmp = tf.while_loop(
        lambda at, found, _: (at < end) & (found < 1),
        step,
        (tf.where(is_png, 8, 2), -1, b""),
        maximum_iterations=_MAX_SEGMENTS,
    )
    digit = tf.strings.regex_replace(xmp, _XMP_ORIENTATION, r"\1")
    is_digit = tf.strings.regex_full_match(digit, "[1-8]")
    of_xmp = tf.strings.to_number(tf.where(is_digit, digit, "1"), tf.int32)
    return tf.where(found < 1, of_xmp, found)


@traced_once(tf.TensorSpec((), tf.string), inline=False)
def _orientation_in_exif(exif):
    """Returns the orientation, int32; 1 if it is damaged, 0 if there is none, -1 of no EXIF."""
    tiff = tf.strings.regex_replace(exif, r"^(?:Exif\x00\x00){1,2}", "")
    is_little = tf.strings.substr(tiff, 0, 1) == b"I"
    words, long = partial(_words, tiff, is_little=is_little), partial(_long, is_little=is_little)
    begin = long(words(4, 2)) + 2
    whole = tf.maximum(tf.strings.length(tiff) - begin, 0) // 12
    fields = tf.reshape(words(begin, 6 * tf.minimum(words(begin - 2, 1)[0], whole)), (-1, 6))
    # One of zeros where there is none.
    has_value = tf.reduce_any(fields[:, 2:4] != 0, axis=1)
    fields = tf.boolean_mask(fields, (fields[:, 0] == _ORIENTATION) & has_value)
    field = tf.pad(fields, [[0, 1], [0, 0]])[0]
    size = tf.reduce_sum(tf.where(field[1] == [3, 8, 4, 9, 13], [2, 2, 4, 4, 4], 0))
    is_inside = long(field[2:4]) * size <= 4
    value = tf.where(is_inside, field[4:], words(long(field[4:]), 2))
    value = tf.where(size == 2, value[0], long(value))
    is_right = (size > 0) & (value > 0) & (value < 9)
    head = tf.strings.substr(tiff, 0, 8)
    is_tiff = tf.strings.regex_full_match(head, r"(?s)(?:II|MM)(?:\*\x00|\x00\*)\C{4}")
    found = tf.where(tf.shape(fields)[0] == 0, 0, tf.where(is_right, value, 1))
    return tf.where(exif == b"", -1, tf.where(is_tiff, found, 1))


def _turned(image, orientation):
    """Returns a photo as it was seen, of its pixels as they are stored."""

    def turned():
        axes = tf.where(orientation > 4, (1, 0, 2), (0, 1, 2))
        # The orientations whose rows are reversed, and those whose columns are.
        is_reversed = tf.reduce_any(orientation == [[3, 4, 7, 8], [2, 3, 6, 7]], axis=1)
        return tf.reverse(tf.transpose(image, axes), tf.where(is_reversed)[:, 0])

    # Nearly every photo is stored as it was seen.
    return tf.cond(orientation == 1, lambda: image, turned)
