"""The patches that masked patch prediction predicts."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_vit.models.masked_patch_prediction import TARGETS, MaskedPatchPrediction, color_of_class
from keras_vit.photos.prepare_photos import require_model_range
from keras_vit.type_hints import Tensor


class Reconstruction(NamedTuple):
    """Predictions beside the images.

    Attributes:
        predicted: (batch, height, width, 3) float32 in [-1, 1]: the images, every
            corrupted patch painted as it was predicted.
        hidden: the same with the corrupted patches gray.
        positions: (batch, corrupted) int indices of the corrupted patches.
        losses: (batch, corrupted) float32.
    """

    predicted: np.ndarray
    hidden: np.ndarray
    positions: np.ndarray
    losses: np.ndarray


def _painted(target, predictions, patch_size):
    """Returns (patches, patch_size, patch_size, 3) in [-1, 1] of (patches, units)."""
    cells = TARGETS[target]
    if cells is None:
        return predictions.reshape(-1, patch_size, patch_size, 3)
    classes = predictions.reshape(-1, cells, cells, predictions.shape[-1] // cells**2).argmax(-1)
    colors = color_of_class(classes) * 2 - 1
    return colors.repeat(patch_size // cells, axis=1).repeat(patch_size // cells, axis=2)


def reconstruct(masked: MaskedPatchPrediction, images: Tensor) -> Reconstruction:
    """Corrupts images once and paints what the model predicts.

    Args:
        masked: a `keras_vit.MaskedPatchPrediction`.
        images: (batch, height, width, 3) float32 in [-1, 1], of the model's size.

    Returns:
        A `Reconstruction`. Colors are the middles of the most likely classes.

    Raises:
        ValueError: for pixels outside of [-1, 1].
    """
    require_model_range(ops.convert_to_numpy(images))
    results = keras.Model(masked.input, masked.endpoints)(images, training=False)
    positions, losses, predictions = (
        ops.convert_to_numpy(results[name]) for name in ("positions", "losses", "predictions")
    )
    size = masked.encoder.token_stride
    _, columns = masked.encoder.grid_size
    predicted = np.array(images, "float32")
    hidden = predicted.copy()
    for image, places in enumerate(positions):
        patches = _painted(masked.arguments["target"], predictions[image], size)
        for place, patch in zip(places, patches, strict=True):
            top, left = (size * side for side in divmod(int(place), columns))
            predicted[image, top : top + size, left : left + size] = patch
            hidden[image, top : top + size, left : left + size] = 0
    return Reconstruction(predicted.clip(-1, 1), hidden, positions, losses)
