"""Reads photos and prepares them as images of a model, with NumPy and Pillow alone.

`training.data.preprocessing` does the same in TensorFlow, for whole data sets and with more
operations.
"""

import contextlib
import functools
import inspect
import io
import os
import stat
import typing
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from keras_vit.interpolation import area_weights, half_pixel_weights
from keras_vit.photos.operations_text import MAX_PIXELS, apply_arguments, calls, height_and_width
from keras_vit.type_hints import Tensor

if typing.TYPE_CHECKING:
    import PIL.Image

# `PIL.Image.Transpose` that turns a photo of an EXIF orientation.
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
# Resampling and rounding leave the range by as much.
_SLACK = 1e-3


def read_photo(
    file: "str | os.PathLike | BinaryIO | PIL.Image.Image", upright: bool = True
) -> np.ndarray:
    """Returns a photo as people see it.

    Gray, palette and CMYK become RGB; of 16 bits the upper 8 are kept; transparency is dropped,
    which shows the colors beneath it; of an animation the first frame is taken.

    Args:
        file: JPEG, PNG, WebP, AVIF, TIFF, BMP, GIF or whatever else Pillow reads but EPS, which
            is a program; HEIC with `pip install 'keras-vit-16x16[heic]'`. Or an image of Pillow.
        upright: whether to turn it as its EXIF orientation says.

    Returns:
        (height, width, 3) uint8 RGB.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read as an image, has more than `MAX_PIXELS`, which its header
            says, or is a pipe or a device.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        if isinstance(file, str | os.PathLike) and not stat.S_ISREG(os.stat(file).st_mode):
            raise ValueError("it is no regular file")
        with _opened(file) as photo:
            if photo.width * photo.height > MAX_PIXELS:
                raise ValueError(
                    f"expected at most {MAX_PIXELS} pixels, received {photo.width} x {photo.height}"
                )
            photo.load()
            method = _TURNS.get(read_orientation(photo)) if upright else None
            turned = photo if method is None else photo.transpose(Image.Transpose(method))
            # PNG and PPM have at most 16 bits, whatever Pillow's mode is.
            is_deep = turned.mode.startswith("I;16") or photo.format in ("PNG", "PPM")
            if turned.mode == "F" or (turned.mode == "I" and not is_deep):
                raise ValueError("expected 8 or 16 bits for a color, received 32")
            if turned.mode.startswith("I"):
                turned = Image.fromarray((np.asarray(turned) >> 8).astype(np.uint8))
            return np.asarray(turned.convert("RGB"))
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise
        # A damaged file raises many kinds of errors, depending on the byte.
        named = isinstance(file, str | os.PathLike)
        unknown = isinstance(error, UnidentifiedImageError)
        reason = _unknown_format(file) if unknown else str(error)
        said = f"{file} cannot be read as an image" if named else "Pillow cannot read it"
        raise ValueError(f"{said}: {reason}") from error


def outside(images: np.ndarray, low: float, high: float) -> str:
    """Returns the beginning of an error's message if values are outside of [low, high], or ""."""
    least, most = float(np.min(images)), float(np.max(images))
    if low - _SLACK <= least and most <= high + _SLACK:
        return ""
    return f"Expected images in [{low}, {high}]. Received: values in [{least:g}, {most:g}]."


def outside_of_models(images: np.ndarray) -> str:
    """Returns what is wrong if pixels lie outside of [-1, 1], which models take, or ""."""
    wrong = outside(images, -1, 1)
    return wrong and f"{wrong} Pass images / 127.5 - 1 for pixels of 0..255."


def require_model_range(images: np.ndarray) -> None:
    """Raises ValueError if pixels lie outside of [-1, 1], which models take."""
    if wrong := outside_of_models(images):
        raise ValueError(wrong)


def warn_of_0_to_1(images: np.ndarray) -> None:
    """Warns the caller's caller if images, expected in [-1, 1], look like [0, 1]."""
    if images.min() >= 0 and images.any():
        warnings.warn(
            "Expected images in [-1, 1]. Received: no value below 0. If they are pixels of [0, 1], "
            "pass images * 2 - 1.",
            stacklevel=4,
        )


def read_orientation(file: "BinaryIO | PIL.Image.Image") -> int:
    """Returns EXIF's orientation of a photo, from 1 to 8; 1 if its EXIF is missing or damaged."""
    # Damaged, it raises many kinds of errors. `exif_transpose` would write the rest of it, too.
    with contextlib.suppress(Exception), _opened(file) as photo:
        found = photo.getexif().get(0x112)
        return found if found in _TURNS else 1
    return 1


def upright_size(file: "str | os.PathLike | BinaryIO") -> tuple[int, int]:
    """Returns (height, width) of a photo, turned as its EXIF says; errors of `PIL.Image.open`."""
    with _opened(file) as photo:
        width, height = photo.size
        # From 5 on it is turned by a quarter.
        return (height, width) if read_orientation(photo) < 5 else (width, height)


def is_of_16_bits(content: "bytes | np.ndarray") -> bool:
    """Whether an image file that Pillow reads has 16 bits for a color, given its bytes."""
    if not isinstance(content, bytes) or content.startswith(b"\x89PNG"):
        return isinstance(content, bytes) and content[24] == 16
    with _opened(io.BytesIO(content)) as photo:
        # The tag of a TIFF, of which Pillow reads colors as 8 bits.
        return photo.mode.startswith("I") or 16 in getattr(photo, "tag_v2", {}).get(258, ())


def _opened(file):
    from PIL import Image

    if isinstance(file, Image.Image):
        return contextlib.nullcontext(file)
    return Image.open(file, formats=_formats())


@functools.cache
def _formats():
    """Returns the formats that Pillow may read; it looks for its plugins once."""
    from PIL import Image

    with contextlib.suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()
    # Pillow hands EPS to Ghostscript, which runs the program that such a file is.
    return tuple(each for each in Image.ID if each != "EPS")


def _unknown_format(file):
    """Returns why Pillow does not know the format of a file."""
    with open(file, "rb") if isinstance(file, str | os.PathLike) else file as stream:
        stream.seek(0)
        head = stream.read(12)
    if head[4:].startswith((b"ftyphe", b"ftypmif", b"ftypmsf")):
        return "HEIC needs: pip install 'keras-vit-16x16[heic]'"
    return "an unknown format" if head else "it is empty"


def prepare_photo(photo: Tensor, operations: str) -> np.ndarray:
    """Applies a text of operations that makes a photo into an image of a model.

    Args:
        photo: (height, width, 3) uint8, of `read_photo`, which `keeps_upright` tells to turn it.
        operations: as `model.preprocessing`: `decode`, `resize`, `resize_small`, `central_crop`,
            `value_range`, `to_uint8` and `on_device`, joined by `|`; see docs/data.md.

    Returns:
        float32, of the size and range that the operations say.

    Raises:
        ValueError: for another operation, or a way of resizing other than bilinear and area, or
            Pillow's, which is antialiased, of photos of bytes.
    """
    image = np.asarray(photo)
    for _, _, apply in parsed_operations(operations):
        image = apply(image)
    return np.asarray(image, "float32")


def parsed_operations(operations: str) -> list[tuple[str, dict[str, Any], Callable]]:
    """Returns the operations of `prepare_photo`: name, all arguments, and function of an image.

    Raises ValueError for another operation, or arguments that it does not take.
    """
    parsed: list[tuple[str, dict[str, Any], Callable]] = []
    for name, call in calls(operations):
        if name not in _OPERATIONS or (name == "decode" and parsed):
            raise ValueError(
                f"Expected operations among {', '.join(_OPERATIONS)}, decode first. Received: "
                f"{name!r} in {operations!r}. `keras-vit predict` has all of them; or pass images "
                "that are prepared, in [-1, 1]."
            )
        make = _OPERATIONS[name]
        apply = apply_arguments(make, name, call, operations)
        bound = apply_arguments(inspect.signature(make).bind, name, call, operations)
        bound.apply_defaults()
        parsed.append((name, dict(bound.arguments), apply))
    return parsed


def maps_to_model_range(operations: str) -> bool:
    """Whether operations end with `value_range(-1, 1)` in any spelling; raises as the above."""
    parsed = parsed_operations(operations.rpartition("|")[2])
    return [(name, *each.values()) for name, each, _ in parsed] == [("value_range", -1, 1, 0, 255)]


def keeps_upright(operations: str) -> bool:
    """Whether photos are turned as EXIF says: not with `decode(upright=False)`; raises as above."""
    parsed = parsed_operations(operations)
    return all(arguments["upright"] for name, arguments, _ in parsed if name == "decode")


def _decode(channels=3, precise=False, upright=True):
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3, not {channels!r}")
    # As `tf.image.rgb_to_grayscale`.
    gray = np.array([[0.2989], [0.587], [0.114]]) * (255.5 / 255)
    return lambda image: image if channels == 3 else (image @ gray).astype(np.uint8)


def _resize(size, method="bilinear", antialias=False):
    shape = height_and_width(size)
    return partial(_resized, shape=shape, weights=_weights_of(method, antialias))


def _weights_of(method, antialias):
    if (method not in _OF_PILLOW) if antialias else (method not in _WEIGHTS):
        raise ValueError(
            f"Expected to resize by {' or '.join(_WEIGHTS)}, or with antialias=True by "
            f"{' or '.join(_OF_PILLOW)}. Received: {method!r}, antialias={antialias}. "
            "`keras-vit predict` has all methods."
        )
    return _OF_PILLOW[method] if antialias else _WEIGHTS[method]


def _resized(image, shape, weights):
    if isinstance(weights, str):
        from PIL import Image

        if image.dtype != np.uint8:
            raise ValueError("Expected antialiased resizing before what makes floats of a photo.")
        return np.asarray(Image.fromarray(image).resize(shape[::-1], Image.Resampling[weights]))
    rows, columns = (
        weights(source, target).astype("float32")
        for source, target in zip(image.shape, shape, strict=False)
    )
    return np.einsum("hr,rcx,wc->hwx", rows, image, columns, optimize=True)


def _resize_small(size, method="area", antialias=False):
    height_and_width(size)
    weights = _weights_of(method, antialias)

    def apply(image):
        factor = size / min(image.shape[:2])
        height, width = (round(side * factor) for side in image.shape[:2])
        if height * width > MAX_PIXELS:
            raise ValueError(
                f"{image.shape[:2]} pixels would become {height} x {width}, above {MAX_PIXELS}"
            )
        return _resized(image, (height, width), weights)

    return apply


def _central_crop(size):
    height, width = height_and_width(size)

    def apply(image):
        top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
        if min(top, left) < 0:
            raise ValueError(
                f"central_crop of {height}×{width} needs an image at least that large; resize "
                f"before it. Received the shape: {image.shape}"
            )
        return image[top : top + height, left : left + width]

    return apply


def _value_range(low=-1.0, high=1.0, in_low=0.0, in_high=255.0):
    scale = (high - low) / (in_high - in_low)
    return lambda image: (np.asarray(image, "float32") - in_low) * scale + low


# Its names of antialiased methods.
_OF_PILLOW = {"bilinear": "BILINEAR", "bicubic": "BICUBIC", "lanczos3": "LANCZOS"}
_WEIGHTS: dict[str, Callable[[int, int], np.ndarray]] = {
    "bilinear": half_pixel_weights,
    "area": area_weights,
}
# Functions of the arguments, each of which returns a function of an image.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "decode": _decode,
    "resize": _resize,
    "resize_small": _resize_small,
    "central_crop": _central_crop,
    "value_range": _value_range,
    "to_uint8": lambda: lambda image: np.rint(image).clip(0, 255).astype(np.uint8),
    "on_device": lambda: lambda image: image,
}
