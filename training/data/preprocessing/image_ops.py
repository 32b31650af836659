"""The operations on single examples: decode, crop, resize, flip, rescale, one_hot.

Images are (height, width, channels), uint8 after `decode` and float32 after a resize, in
0..255 until `value_range`. Resizing is bilinear with half-pixel centres and without
anti-aliasing, as in the original, unless `method` or `antialias` says otherwise.
"""

from __future__ import annotations

import tensorflow as tf

from training.data import graph_checks, label_rules
from training.data.preprocessing.pipeline_text import operation

# An image larger than this is an error of its file or of the text, not a photograph: without a
# limit, resize_small of a 1×5000 image would ask for gigabytes.
MAX_PIXELS = 1 << 27


@operation("decode")
def decode(channels: int = 3, precise: bool = False):
    """JPEG, PNG, BMP or GIF (first frame) bytes to uint8 (height, width, channels).

    Grayscale and CMYK become RGB. An image that is stored as an array passes through.

    Args:
        channels: 3, or 1 for grayscale JPEGs and PNGs.
        precise: decode JPEGs with the accurate inverse DCT, bit for bit as PIL does. The
            default is the fast one, TensorFlow's own, with which the published models trained.
    """
    dct_method = _dct_method(precise)
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3, not {channels!r}")

    def other_than_jpeg(image):
        decoded = tf.io.decode_image(image, channels=channels, expand_animations=False)
        return tf.ensure_shape(decoded, (None, None, channels))

    def apply(image):
        if image.dtype != tf.string:
            return image
        return tf.cond(
            tf.io.is_jpeg(image),
            lambda: tf.io.decode_jpeg(image, channels=channels, dct_method=dct_method),
            lambda: other_than_jpeg(image),
        )

    apply.channels, apply.dct_method = channels, dct_method
    apply.other_than_jpeg = other_than_jpeg
    return apply


@operation("inception_crop")
def inception_crop(size, area_min: float = 0.05, area_max: float = 1.0, resize: bool = True):
    """The training crop of the original: random area and aspect, resized to `size`.

    The area is 5 to 100 % of the image, the aspect ratio uniform in 0.75..1.33, and the height
    uniform given the aspect, so small crops are favoured; after 100 failures the whole image.
    """
    shape = _pair(size)

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

    return _crop(box, shape if resize else None)


@operation("random_resized_crop")
def random_resized_crop(
    size, scale: tuple = (0.08, 1.0), ratio: tuple = (3 / 4, 4 / 3), attempts: int = 10
):
    """torchvision's training crop: area uniform in `scale`, aspect log-uniform in `ratio`.

    After `attempts` failures, the largest central crop whose aspect lies in `ratio`.
    """
    shape = _pair(size)

    def box(image_shape, seed):
        height, width = (tf.cast(image_shape[k], tf.float32) for k in (0, 1))
        draws = tf.random.stateless_uniform((4, attempts), seed)
        area = height * width * (scale[0] + draws[0] * (scale[1] - scale[0]))
        low, high = tf.math.log(ratio[0]), tf.math.log(ratio[1])
        aspect = tf.exp(low + draws[1] * (high - low))
        crop_h, crop_w = tf.round(tf.sqrt(area / aspect)), tf.round(tf.sqrt(area * aspect))
        fits = (crop_h >= 1) & (crop_w >= 1) & (crop_h <= height) & (crop_w <= width)

        def sampled():
            first = tf.argmax(tf.cast(fits, tf.int32))
            h, w = crop_h[first], crop_w[first]
            top = tf.floor(draws[2][first] * (height - h + 1))
            left = tf.floor(draws[3][first] * (width - w + 1))
            return tf.stack([top, left, h, w])

        def central():
            h = tf.maximum(1.0, tf.minimum(height, tf.round(width / ratio[0])))
            w = tf.maximum(1.0, tf.minimum(width, tf.round(height * ratio[1])))
            return tf.stack([(height - h) // 2, (width - w) // 2, h, w])

        return tf.cast(tf.cond(tf.reduce_any(fits), sampled, central), tf.int32)

    return _crop(box, shape)


@operation("resize")
def resize(size, method: str = "bilinear", antialias: bool = False):
    """Resizes to `size` (one number or (height, width)), not keeping the aspect; float32."""
    shape = _pair(size)
    return lambda image: _resize(image, shape, method, antialias)


@operation("resize_small")
def resize_small(size: int, method: str = "area", antialias: bool = False):
    """Resizes so that the smaller side is `size`, keeping the aspect; float32."""

    def apply(image):
        height, width = (tf.cast(tf.shape(image)[k], tf.float32) for k in (0, 1))
        factor = tf.cast(size, tf.float32) / tf.minimum(height, width)
        # In float32: an extreme aspect must be refused, not wrap around as an integer.
        new_h, new_w = tf.round(height * factor), tf.round(width * factor)
        graph_checks.require(
            new_h * new_w <= MAX_PIXELS,
            f"resize_small({size}) of an image of this height and width would exceed "
            f"{MAX_PIXELS} pixels:",
            tf.shape(image),
        )
        return _resize(image, tf.cast(tf.stack([new_h, new_w]), tf.int32), method, antialias)

    return apply


@operation("random_crop")
def random_crop(size):
    """Crops `size` (one number or (height, width)) at a random place."""
    shape = _pair(size)

    def apply(image, seed):
        limit = tf.shape(image)[:2] - shape + 1
        _check_crop(limit, "random_crop", shape, image)
        draw = tf.random.stateless_uniform((2,), seed)
        begin = tf.cast(draw * tf.cast(limit, tf.float32), tf.int32)
        # A draw just below one may round up to the limit.
        begin = tf.minimum(begin, limit - 1)
        return tf.image.crop_to_bounding_box(image, begin[0], begin[1], *shape)

    return apply


@operation("central_crop")
def central_crop(size):
    """Crops `size` (one number or (height, width)) from the centre."""
    shape = _pair(size)

    def apply(image):
        limit = tf.shape(image)[:2] - shape + 1
        _check_crop(limit, "central_crop", shape, image)
        begin = (limit - 1) // 2
        return tf.image.crop_to_bounding_box(image, begin[0], begin[1], *shape)

    return apply


@operation("pad")
def pad(pixels: int):
    """Adds `pixels` black pixels on every side."""
    return lambda image: tf.pad(image, [[pixels, pixels], [pixels, pixels], [0, 0]])


@operation("random_shift")
def random_shift(pixels: int):
    """Moves the image by up to `pixels` pixels each way; what comes in is black."""

    def apply(image, seed):
        shape = tf.shape(image)
        offset = tf.random.stateless_uniform((2,), seed, 0, 2 * pixels + 1, dtype=tf.int32)
        shifted = tf.slice(pad(pixels)(image), [offset[0], offset[1], 0], shape)
        return tf.ensure_shape(shifted, image.shape)

    return apply


@operation("flip_lr")
def flip_lr(probability: float = 0.5):
    """Mirrors the image left to right with `probability`."""

    def apply(image, seed):
        flip = tf.random.stateless_uniform((), seed) < probability
        return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)

    return apply


@operation("value_range")
def value_range(low: float = -1.0, high: float = 1.0, in_low: float = 0.0, in_high: float = 255.0):
    """Maps `in_low`..`in_high` to `low`..`high`; float32."""
    scale = (high - low) / (in_high - in_low)
    shift = low - in_low * scale

    def apply(image):
        return tf.cast(image, tf.float32) * scale + shift

    def from_uint8(image):
        if image.dtype != tf.uint8 or (in_low, in_high) != (0, 255) or low >= high:
            return apply(image)
        # The same numbers in one pass over the pixels instead of three.
        return tf.raw_ops.Dequantize(
            input=tf.bitcast(image, tf.quint8), min_range=low, max_range=high, mode="MIN_COMBINED"
        )

    apply.from_uint8 = from_uint8
    return apply


@operation("to_uint8")
def to_uint8():
    """Rounds to uint8, a quarter of the bytes to the device; normalise after `on_device`."""
    return lambda image: tf.saturate_cast(tf.round(image), tf.uint8)


@operation("on_device")
def on_device():
    """Marks the end of the host's part: the training step applies what follows."""
    return lambda image: image


@operation("one_hot", stage="label")
def one_hot(num_classes: int):
    """Labels as float32 (num_classes,); training and evaluation do so by themselves."""
    return lambda label: label_rules.one_hot(label, num_classes)


def _dct_method(precise: bool) -> str:
    return "INTEGER_ACCURATE" if precise else "INTEGER_FAST"


def _pair(size) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise ValueError(f"an image has at least one pixel, not {size}")
    return int(height), int(width)


def _to_float32(image):
    return tf.cast(image, tf.float32)


def _resize(image, shape, method, antialias=False, to_float32=_to_float32):
    """Resizes, and applies `to_float32`, an affine function, on the side where it costs less."""

    def resized(image):
        return tf.cast(tf.image.resize(image, shape, method, antialias=antialias), tf.float32)

    if image.dtype != tf.uint8 or method != "bilinear" or antialias:
        return to_float32(resized(image))
    # TensorFlow resizes float32 with vector instructions and uint8 without, to the same bits.
    # Converting pays unless the image is so large that most of its pixels are skipped.
    return tf.cond(
        tf.size(image) <= 4 * shape[0] * shape[1] * (image.shape[2] or 3),
        lambda: resized(to_float32(image)),
        lambda: to_float32(resized(image)),
    )


def _crop(box, shape):
    """Makes a crop-and-resize operation of `box(image_shape, seed) -> (top, left, h, w)`.

    Its attributes `decode_and_crop` and `finish` are its two halves for encoded images.
    """

    def finish(crop, to_float32=None):
        if shape:
            return _resize(crop, shape, "bilinear", to_float32=to_float32 or _to_float32)
        return to_float32(crop) if to_float32 else crop

    def cropped(image, seed):
        top, left, height, width = tf.unstack(box(tf.shape(image), seed))
        return tf.slice(image, [top, left, 0], [height, width, image.shape[2] or -1])

    def decode_and_crop(image, seed, decode):
        def fused():
            window = box(tf.io.extract_jpeg_shape(image), seed)
            return tf.io.decode_and_crop_jpeg(
                image, window, channels=decode.channels, dct_method=decode.dct_method
            )

        if image.dtype != tf.string:
            return cropped(image, seed)
        # What a branch not taken holds still costs time, so this one knows that it has no JPEG.
        return tf.cond(
            tf.io.is_jpeg(image), fused, lambda: cropped(decode.other_than_jpeg(image), seed)
        )

    def apply(image, seed):
        return finish(cropped(image, seed))

    apply.decode_and_crop, apply.finish = decode_and_crop, finish
    return apply


def _check_crop(limit, name, shape, image):
    graph_checks.require(
        tf.reduce_all(limit > 0),
        f"{name} of {shape[0]}×{shape[1]} needs an image at least that large; resize before it. "
        "Received the shape:",
        tf.shape(image),
    )
