"""What masked patch prediction predicts of a patch (appendix B.1.2)."""

from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import Layer
from keras_vit.layers.patch_embedding import cut_patches
from keras_vit.type_hints import Tensor

# Three bits for each of red, green and blue.
LEVELS = 8
COLORS = LEVELS**3
# A patch is downsized to CELLS x CELLS colors.
CELLS = 4


def color_classes(colors: Tensor) -> Tensor:
    """Returns the 3-bit colors of `colors`, (..., 3) RGB in [0, 1], as int32 (...) in [0, 512).

    Red is most significant: 64 r + 8 g + b, each the floor of 8 times the color, at most 7.
    """
    levels = ops.clip(ops.floor(ops.cast(colors, "float32") * LEVELS), 0, LEVELS - 1)
    levels = ops.cast(levels, "int32")
    return levels[..., 0] * LEVELS**2 + levels[..., 1] * LEVELS + levels[..., 2]


def color_of_class(classes: Tensor) -> np.ndarray:
    """Returns the middle of the cube of colors of each class, (..., 3) RGB in [0, 1]."""
    classes = np.asarray(classes)
    levels = np.stack([classes // LEVELS**2, classes // LEVELS % LEVELS, classes % LEVELS], -1)
    return (levels + 0.5) / LEVELS


class PatchTarget(Protocol):
    """A kind of target: what is predicted of a patch."""

    def units(self, patch_size: int) -> int:
        """Returns how many numbers are predicted for a patch of so many pixels on a side."""

    def of(self, patches: Tensor) -> Tensor:
        """Returns the targets of (batch, patches, size, size, 3) pixels in [-1, 1]."""

    def losses(self, targets: Tensor, predictions: Tensor) -> Tensor:
        """Returns the loss of every patch, (batch, patches)."""


class Colors(PatchTarget):
    """The 3-bit mean colors of a patch's cells, each one choice of 512.

    Args:
        cells: int, how many a side of the patch is divided into: 1 is the paper's final setting.
    """

    def __init__(self, cells: int) -> None:
        self.cells = cells

    def units(self, patch_size: int) -> int:
        if patch_size % self.cells:
            raise ValueError(
                f'target="downsized" needs patches whose side is a multiple of {self.cells} '
                f"pixels. Received: {patch_size} pixels"
            )
        return self.cells**2 * COLORS

    def of(self, patches: Tensor) -> Tensor:
        _, count, size, _, channels = patches.shape
        side = (self.cells, size // self.cells)
        means = ops.mean(ops.reshape(patches, (-1, count, *side, *side, channels)), axis=(3, 5))
        return color_classes((ops.reshape(means, (-1, count, self.cells**2, channels)) + 1) / 2)

    def losses(self, targets: Tensor, predictions: Tensor) -> Tensor:
        logits = ops.reshape(predictions, (-1, targets.shape[1], self.cells**2, COLORS))
        by_cell = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        return ops.mean(by_cell, axis=-1)


class Pixels(PatchTarget):
    """All pixels of a patch, by mean squared error on the range [-1, 1]."""

    def units(self, patch_size: int) -> int:
        return patch_size**2 * 3

    def of(self, patches: Tensor) -> Tensor:
        _, count, size, _, channels = patches.shape
        return ops.reshape(patches, (-1, count, size * size * channels))

    def losses(self, targets: Tensor, predictions: Tensor) -> Tensor:
        return keras.losses.mean_squared_error(targets, predictions)


TARGETS: dict[str, PatchTarget] = {
    "mean_color": Colors(1),
    "downsized": Colors(CELLS),
    "pixels": Pixels(),
}


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchLoss(Layer):
    """Compares predictions with what the patches are in the image.

    Args:
        target: "mean_color", "downsized" or "pixels".
        grid_size: (rows, columns) of patches.
        patch_size: int, pixels on a side of a patch.

    Call arguments:
        images: (batch, height, width, 3) float32 in [-1, 1].
        positions: (batch, predicted) int indices of patches.
        predictions: (batch, predicted, units).

    Returns:
        (batch, predicted) float32 losses.
    """

    def __init__(
        self, target: str, grid_size: tuple[int, int], patch_size: int, **kwargs: Any
    ) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.target = target
        self.grid_size = (grid_size[0], grid_size[1])
        self.patch_size = patch_size

    def call(self, images: Tensor, positions: Tensor, predictions: Tensor) -> Tensor:
        target = TARGETS[self.target]
        targets = target.of(cut_patches(images, self.grid_size, self.patch_size))
        index = ops.reshape(positions, (-1, positions.shape[1], *(1,) * (len(targets.shape) - 2)))
        return target.losses(ops.take_along_axis(targets, index, axis=1), predictions)

    def compute_output_spec(
        self, images: Tensor, positions: Tensor, predictions: Tensor
    ) -> keras.KerasTensor:
        return keras.KerasTensor(positions.shape, dtype="float32")
