"""The signatures of a TFLite file, for other batches, image sizes and outputs; their samples."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.analysis.attention_rollout import rollout_endpoint
from keras_vit.export.supported_models import check_range, image_size, output_name
from keras_vit.models.argument_checks import as_height_width
from keras_vit.models.find_and_replace_layers import with_replaced_layers
from keras_vit.type_hints import ImageSize, Tensor

MAIN = "serving_default"
ROLLOUT = "attention_rollout"
CALIBRATION_IMAGES = 200
# Of pixels in [0, 1]: photos reach further than this.
NARROW = 0.5

logger = logging.getLogger("keras_vit")


class Signature(NamedTuple):
    """One way into a file.

    Attributes:
        graph: from images to the output, on the model's weights.
        shape: of its images, (batch, height, width, 3).
        output: its name.
    """

    graph: keras.Model
    shape: tuple[int, int, int, int]
    output: str


def signatures(
    model: keras.Model,
    batch_sizes: Iterable[int] = (),
    image_sizes: Iterable[ImageSize] = (),
    feature_vector: bool = False,
    attention_rollout: bool = False,
) -> dict[str, Signature]:
    """Returns the signatures by name, the main one first.

    Args:
        model: that is exported.
        batch_sizes: each a signature "batch_N".
        image_sizes: each a signature "size_HEIGHTxWIDTH", for one image.
        feature_vector: whether there is one that gives the representation.
        attention_rollout: whether there is one that gives the attention rollout.

    Raises:
        ValueError: if a size is not positive, or the model is for one image size alone.
    """
    output = output_name(model)
    size = image_size(model)
    found = {MAIN: Signature(model, (1, *size, 3), output)}
    for batch in batch_sizes:
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(f"`batch_sizes` must be positive ints. Received: {batch!r}")
        found[f"batch_{batch}"] = Signature(model, (batch, *size, 3), output)
    for each in image_sizes:
        height, width = as_height_width(each)
        graph, shape = _of_size(model, height, width), (1, height, width, 3)
        found[f"size_{height}x{width}"] = Signature(graph, shape, output)
    if feature_vector and output == "logits":
        features = keras.Model(model.input, model.endpoints["representation"])
        found["feature_vector"] = Signature(features, (1, *size, 3), "representation")
    if attention_rollout:
        maps = keras.Model(model.input, rollout_endpoint(model))
        found[ROLLOUT] = Signature(maps, (1, *size, 3), "rollout")
    return found


def _of_size(model, height, width):
    """Returns the graph of a model for images of another size, position embeddings resized."""
    any_size = model.any_resolution() if hasattr(model, "any_resolution") else model
    try:
        return with_replaced_layers(any_size, {}, (None, height, width, 3))
    except ValueError as error:
        raise ValueError(
            f"Expected a model for images of any size. Received: {model.name}, which cannot take "
            f"{height} x {width} pixels: {error}"
        ) from error


def calibration_samples(
    calibration: Iterable[Tensor], found: Mapping[str, Signature]
) -> dict[str, list[dict[str, Any]]]:
    """Returns what each signature is calibrated with, by name.

    Args:
        calibration: RGB images in [0, 1] of the model's size: an array, or an iterable of images
            or of batches. The first `CALIBRATION_IMAGES` are used.
        found: what `signatures` returned.

    Raises:
        ValueError: if there are fewer images than a batch has, or their size or range is another.
    """
    images = _images(calibration, found[MAIN].shape[1:])
    samples = {}
    for name, (_, (batch, *size, _), _) in found.items():
        whole = len(images) // batch * batch
        if not whole:
            raise ValueError(
                f"Expected at least {batch} calibration images for the signature {name}. "
                f"Received: {len(images)}"
            )
        sized = images
        if images.shape[1:3] != tuple(size):
            resized = keras.ops.image.resize(images, size, data_format="channels_last")
            sized = np.clip(keras.ops.convert_to_numpy(resized), 0, 1)
        samples[name] = [{"image": sized[i : i + batch]} for i in range(0, whole, batch)]
    return samples


def _images(calibration, shape):
    """Returns the images to calibrate with, (n, height, width, 3) float32 in [0, 1]."""
    images: list[np.ndarray] = []
    for each in calibration:
        array = np.asarray(each, dtype="float32")
        images.extend(array if array.ndim == 4 else [array])
        if len(images) >= CALIBRATION_IMAGES:
            break
    del images[CALIBRATION_IMAGES:]
    shapes = {image.shape for image in images}
    if shapes != {shape}:
        raise ValueError(
            f"Expected calibration images of shape {shape}. Received: "
            f"{sorted(shapes) or 'no images'}"
        )
    stacked = np.stack(images)
    check_range(stacked)
    if not np.ptp(stacked, axis=(1, 2)).any():
        raise ValueError(
            "Expected calibration images like those of the application. Received: "
            f"{len(stacked)} images of one color each."
        )
    low, high = float(stacked.min()), float(stacked.max())
    if high - low < NARROW:
        logger.warning(
            "The calibration images have pixels in [%.2g, %.2g] alone, so the ranges of the int8 "
            "file are narrow: other images will be clipped. Calibrate with images like those of "
            "the application.",
            *(low, high),
        )
    return stacked
