"""Decoding: encoded bytes to images, (height, width, channels) uint8 in 0..255."""

import io
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from training.data.preprocessing.exif_orientation import exif_orientation, turned_upright
from training.data.preprocessing.operation import operation
from training.data.preprocessing.reduced_decoding import decode_reduced
from training.data.tracing import traced_once

# Of an image's shape, the (height, width) that it is resized to.
SizeOf = Callable[[tf.Tensor], tuple[int, int] | tf.Tensor]
_PNG, _GIF = b"\x89PNG", b"GIF8"


@operation("decode")
class Decode:
    """JPEG, PNG, GIF (first frame), BMP, WebP or TIFF bytes to uint8 (height, width, channels).

    Gray, palette and CMYK become RGB; of 16 bits the upper 8 are kept; transparency is dropped.
    An image that is stored as an array passes through.

    Args:
        channels: 3, or 1 for grayscale.
        precise: decode JPEGs with the accurate inverse DCT, bit for bit as PIL does. The
            default is the fast one, TensorFlow's own, with which the published models trained.
        upright: turn photos as their EXIF orientation says.

    Attributes:
        upright: the argument; `Preprocess` clears it for data sets that are read as stored.
        graph_only: whether all must be operations of TensorFlow, as what is saved in a module
            is: then Pillow reads nothing, and what it is for fails (WebP before TensorFlow 2.20,
            TIFF, BMP with a palette).
        reduced: 0, or how many times the pixels of what it is resized to a JPEG keeps at least
            that is decoded at a fraction of its size; see `reduced_decoding`.
    """

    def __init__(self, channels: int = 3, precise: bool = False, upright: bool = True):
        if channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, not {channels!r}")
        self.upright = upright
        self.graph_only = False
        self.reduced = 0.0
        self._in_graphs = traced_once(tf.TensorSpec((), tf.string), inline=False)(self._other)
        self._channels = channels
        self._jpeg_options = {
            "channels": channels,
            "dct_method": "INTEGER_ACCURATE" if precise else "INTEGER_FAST",
        }

    def __call__(self, image: tf.Tensor, size_of: SizeOf | None = None) -> tf.Tensor:
        """Returns the image that the string scalar `image` encodes.

        Args:
            image: string scalar, or an image.
            size_of: maps its shape, int32 (3,), to the (height, width) that it is resized to.
        """
        if image.dtype != tf.string:
            return image

        def at(ratio):
            return tf.io.decode_jpeg(image, ratio=ratio, **self._jpeg_options)

        def of_jpeg():
            if not (self.reduced and size_of):
                return at(1)
            shape = tf.io.extract_jpeg_shape(image)
            return decode_reduced(at, shape[:2], size_of(shape), self.reduced)

        return tf.cond(
            self.is_upright_jpeg(image), of_jpeg, lambda: self.other_than_upright_jpeg(image)
        )

    def is_upright_jpeg(self, image: tf.Tensor) -> tf.Tensor:
        """Returns whether it is a JPEG whose pixels are stored as they are wanted, bool."""
        is_jpeg = tf.io.is_jpeg(image)
        return is_jpeg & (exif_orientation(image) == 1) if self.upright else is_jpeg

    def jpeg_window(
        self, image: tf.Tensor, window: tf.Tensor, target: tuple[int, int] | None
    ) -> tf.Tensor:
        """Decodes only `window`, int32 (top, left, height, width), of an upright JPEG.

        At a fraction of its size, if `reduced` allows it, each side of the window is divided by the
        ratio and rounded, halves up.

        Args:
            image: encoded.
            window: in pixels of the whole image.
            target: the (height, width) that it is resized to, if it is.
        """

        def at(ratio):
            begin = (window[:2] + ratio // 2) // ratio
            end = (window[:2] + window[2:] + ratio // 2) // ratio
            smaller = tf.concat([begin, end - begin], axis=0)
            return tf.io.decode_and_crop_jpeg(image, smaller, ratio=ratio, **self._jpeg_options)

        if self.reduced and target:
            return decode_reduced(at, window[2:], tf.constant(target), self.reduced)
        return tf.io.decode_and_crop_jpeg(image, window, **self._jpeg_options)

    def other_than_upright_jpeg(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes a JPEG that is to be turned, or another format."""
        # Eagerly, Python's errors stay what they are.
        return (self._other if tf.executing_eagerly() else self._in_graphs)(image)

    def _other(self, image):
        if self.graph_only:
            return self._by_tensorflow(image)
        start = tf.strings.substr(image, 0, 4)
        return tf.cond(
            tf.io.is_jpeg(image) | (start == _PNG) | (start == _GIF),
            lambda: self._by_tensorflow(image),
            lambda: self._by_pillow(image),
        )

    def _by_tensorflow(self, image):
        shape = (None, None, self._channels)

        def any_format():
            decoded = tf.io.decode_image(image, channels=self._channels, expand_animations=False)
            return tf.ensure_shape(decoded, shape)

        if not self.upright:
            return any_format()  # JPEGs do not come here
        decoded = tf.cond(
            tf.io.is_jpeg(image),
            lambda: tf.io.decode_jpeg(image, **self._jpeg_options),
            any_format,
        )
        return turned_upright(decoded, exif_orientation(image))

    def _by_pillow(self, image):
        def read(content):
            # Here, as it brings Keras, which reading data needs for nothing else.
            from keras_vit.photos import read_photo

            # Bytes in a graph, and an array of them outside of one.
            content = np.asarray(content, object).item()
            return read_photo(io.BytesIO(content), upright=self.upright)

        decoded = tf.numpy_function(read, [image], tf.uint8, stateful=False)
        decoded = tf.ensure_shape(decoded, (None, None, 3))
        return tf.image.rgb_to_grayscale(decoded) if self._channels == 1 else decoded
