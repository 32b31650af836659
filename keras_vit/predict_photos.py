"""Photos to names: the most probable classes of each."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.models.image_model import ACTIVATIONS, model_inside
from keras_vit.name_suggestions import require_one_of
from keras_vit.photos import prepare_photos
from keras_vit.type_hints import Tensor


def predict(
    model: keras.Model,
    images_or_paths: Tensor | str | os.PathLike | Sequence[str | os.PathLike],
    top: int | None = None,
    *,
    activation: str | None = None,
    batch_size: int = 8,
) -> list[list[tuple[str, float]]]:
    """Returns the most probable classes of each image, the best first.

    Photos, which are files and images of integers, are prepared as `model.preprocessing` says, or
    else resized to the model's size, bilinearly and not keeping the aspect. Floats are taken for
    images that are prepared, of the model's size and in [-1, 1]; other values are refused, and
    images without a value below 0, which look like [0, 1], are warned of.

    Args:
        model: a `VisionTransformer`, `ResNetV2` or `AxialResNet` with a head.
        images_or_paths: paths of image files or images of Pillow, one or several, read as
            `prepare_photos.read_photo` does; (batch, height, width, 3) or (height, width, 3) uint8,
            photos in 0..255, or a list of such of several sizes; or images of floats.
        top: int, how many classes of each; None is 5, or all of a model of several labels.
        activation: "softmax" or "sigmoid"; None takes `model.activation`.
        batch_size: int, images computed at once.

    Returns:
        A list, one for each image, of (name, probability). Names are those of
        `model.class_names`, or the numbers of the classes where these are not known. Of a model
        with `thresholds` they are the classes that reach theirs, which may be none; of one of
        numbers, every column with its number.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: if the model has no head, an argument is out of its range, a file cannot be
            read as an image, or images are of another size or range.

    Examples:
        >>> keras_vit.predict(model, ["cat.jpg", "dog.jpg"], top=1)
        [[('cat', 0.93)], [('dog', 0.88)]]
    """
    if activation is not None:
        require_one_of("activation", activation, ACTIVATIONS)
    if top is None:
        several = getattr(model, "classifies", "") in ("labels", "number")
        top = model.output_shape[-1] if several else 5
    for name, value in (("top", top), ("batch_size", batch_size)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"`{name}` must be a positive int. Received: {value!r}")
    arguments, shape = getattr(model, "arguments", {}), tuple(model.output_shape)
    if arguments.get("num_classes") is None or len(shape) != 2:
        raise ValueError(
            "Expected a model of keras_vit with a head, built with num_classes, and one row of "
            f"logits for an image. Received: {model.name}, which gives {shape}."
            f"{'' if arguments else model_inside(model, needs_head=True)}"
        )
    model.require_logits()
    images = prepared_photos(model, images_or_paths)
    logits = model.predict(images, batch_size=batch_size, verbose=0)
    best, probabilities = most_probable(logits, activation or model.activation, top)
    names = model.class_names or [str(i) for i in range(shape[-1])]
    least = model.thresholds or (-np.inf,) * shape[-1]
    return [
        [(names[i], float(value)) for i, value in zip(*row, strict=True) if value >= least[i]]
        for row in zip(best, probabilities, strict=True)
    ]


def most_probable(logits: Tensor, activation: str, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of the `top` classes of each row, best first, and their probabilities.

    Both are (images, top). Logits, (images, classes), whose probabilities round to the same are in
    their own order; with `activation` "none" instead of "softmax" or "sigmoid" they are
    probabilities. Raises ValueError for one that is not finite, or more than one row for an image.
    """
    logits = ops.convert_to_numpy(logits)
    if logits.ndim != 2:
        raise ValueError(
            f"Expected one row of logits for an image. Received: logits of shape {logits.shape}."
        )
    if not np.isfinite(logits).all():
        raise ValueError(
            "Expected finite logits. Received: infinite or undefined values from the model, whose "
            "training may have diverged."
        )
    # Numbers stay in the order of their columns.
    order = -logits if activation != "linear" else np.zeros_like(logits)
    best = np.argsort(order, axis=-1, kind="stable")[:, :top]
    values = logits if activation == "none" else ACTIVATIONS[activation](logits)
    return best, np.take_along_axis(ops.convert_to_numpy(values), best, axis=-1)


def prepared_photos(model: keras.Model, images_or_paths: Any) -> np.ndarray:
    """Returns (batch, height, width, 3) float32 in [-1, 1], prepared as `predict` does."""
    height, width, channels = model.input_shape[1:]
    operations = model.preprocessing or f"resize([{height},{width}])|value_range(-1,1)"
    photos: Any = [images_or_paths] if _is_read(images_or_paths) else images_or_paths
    listed = isinstance(photos, list | tuple)
    if not listed or not (any(map(_is_read, photos)) or len(set(map(np.shape, photos))) > 1):
        array = ops.convert_to_numpy(photos)
        photos = array[None] if array.ndim == 3 else array
        if photos.ndim != 4 or not len(photos) or photos.shape[-1] != channels:
            raise ValueError(
                f"Expected images of shape (batch, height, width, {channels}), at least one, or "
                f"paths of image files. Received: {array.shape}"
            )
        if photos.dtype != bool and not np.issubdtype(photos.dtype, np.integer):
            images = _checked(photos.astype("float32"), (height, width))
            prepare_photos.warn_of_0_to_1(images)
            return images
    if not prepare_photos.maps_to_model_range(operations):
        raise ValueError(
            "Expected `model.preprocessing` to end with value_range(-1, 1), the range of every "
            f"model. Received: {operations!r}."
        )
    upright = prepare_photos.keeps_upright(operations)
    prepare = prepare_photos.prepare_photo
    images = np.stack([prepare(_pixels(photo, upright), operations) for photo in photos])
    if images.shape[-1] != channels:
        raise ValueError(
            f"Expected images that are prepared, floats in [-1, 1], for a model of {channels} "
            f"channels. Received: photos, of which {operations!r} makes {images.shape[-1]}."
        )
    return _checked(images, (height, width))


def _is_read(image):
    from PIL import Image

    return isinstance(image, str | os.PathLike | Image.Image)


def _pixels(photo, upright) -> np.ndarray:
    if _is_read(photo):
        return prepare_photos.read_photo(photo, upright)
    array = ops.convert_to_numpy(photo)
    if array.ndim != 3 or array.shape[-1] != 3 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            "Expected each photo as (height, width, 3) uint8, and images of floats of one size. "
            f"Received: {array.shape} of {array.dtype}."
        )
    if array.min() < 0 or array.max() > 255:
        raise ValueError(
            f"Expected photos in 0..255. Received: integers in {array.min()}..{array.max()}."
        )
    return array


def _checked(images, size):
    if images.shape[1:3] != size:
        raise ValueError(
            f"Expected images of {size[0]} x {size[1]} pixels. Received: {images.shape}. Photos "
            "of any size are resized if they are uint8 or paths of files."
        )
    if wrong := prepare_photos.outside(images, -1, 1):
        advice = "Pixels of 0..255 are rescaled if they are uint8; else pass images / 127.5 - 1."
        raise ValueError(f"{wrong} {advice}")
    return images
