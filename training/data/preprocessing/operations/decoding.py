"""Decoding: encoded bytes to images, (height, width, channels) uint8 in 0..255."""

import tensorflow as tf

from training.data.preprocessing.operation import operation


@operation("decode")
class Decode:
    """JPEG, PNG, BMP or GIF (first frame) bytes to uint8 (height, width, channels).

    Grayscale and CMYK become RGB. An image that is stored as an array passes through.

    Args:
        channels: 3, or 1 for grayscale JPEGs and PNGs.
        precise: decode JPEGs with the accurate inverse DCT, bit for bit as PIL does. The
            default is the fast one, TensorFlow's own, with which the published models trained.
    """

    def __init__(self, channels: int = 3, precise: bool = False):
        if channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, not {channels!r}")
        self._channels = channels
        self._jpeg_options = {
            "channels": channels,
            "dct_method": "INTEGER_ACCURATE" if precise else "INTEGER_FAST",
        }

    def __call__(self, image: tf.Tensor) -> tf.Tensor:
        """Returns the image that the string scalar `image` encodes."""
        if image.dtype != tf.string:
            return image
        return tf.cond(
            tf.io.is_jpeg(image),
            lambda: tf.io.decode_jpeg(image, **self._jpeg_options),
            lambda: self.other_than_jpeg(image),
        )

    def jpeg_window(self, image: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
        """Decodes only `window`, int32 (top, left, height, width), of a JPEG."""
        return tf.io.decode_and_crop_jpeg(image, window, **self._jpeg_options)

    def other_than_jpeg(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes a PNG, BMP or GIF."""
        decoded = tf.io.decode_image(image, channels=self._channels, expand_animations=False)
        return tf.ensure_shape(decoded, (None, None, self._channels))
