"""Images to patch embeddings (equation 1)."""

import warnings
from typing import Any

import keras
from keras import ops

from keras_vit.initializers import VarianceScaling
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


def cut_patches(images: Tensor, grid_size: tuple[int, int], patch_size: int) -> Tensor:
    """Returns (batch, rows * columns, patch_size, patch_size, channels) in raster order.

    Rows and columns that do not fill a patch are cropped.
    """
    rows, columns = grid_size
    channels = images.shape[-1]
    cropped = images[:, : rows * patch_size, : columns * patch_size]
    split = ops.reshape(cropped, (-1, rows, patch_size, columns, patch_size, channels))
    patches = ops.transpose(split, (0, 1, 3, 2, 4, 5))
    return ops.reshape(patches, (-1, rows * columns, patch_size, patch_size, channels))


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEmbedding(Layer):
    """Cuts an image or feature map into patches and projects each linearly.

    The projection of flattened patches by E in equation 1 is a convolution whose kernel and stride
    are the patch size; rows and columns that do not fill a patch are cropped, which a warning says.

    Args:
        hidden_size: int, the width D of an embedding.
        patch_size: int, pixels (or feature map cells) on a side of a patch.

    Call arguments:
        inputs: (batch, height, width, channels) float tensor.

    Returns:
        (batch, height // patch_size, width // patch_size, hidden_size).
    """

    def __init__(self, hidden_size: int, patch_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())
        sizes = (hidden_size, patch_size, patch_size)  # the last is the stride
        options: dict[str, Any] = {"kernel_initializer": VarianceScaling()}
        options["data_format"] = "channels_last"
        self.projection = self.inner(keras.layers.Conv2D, "projection", *sizes, **options)

    def build(self, input_shape: tuple) -> None:
        self.compute_output_shape(input_shape)  # checks the size
        height, width = input_shape[1:3]
        if any((side or 0) % self.patch_size for side in (height, width)):
            warnings.warn(
                f"Expected images, or feature maps of a hybrid, whose sides are multiples of "
                f"patch_size={self.patch_size}. Received: {height} x {width}. The rows and columns "
                "that do not fill a patch are cropped: change image_size to use all of the image.",
                stacklevel=2,
            )
        self.projection.build(input_shape)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        _, rows, columns, _ = self.compute_output_shape(inputs.shape)
        if not training or None in inputs.shape[1:]:
            return self.projection(inputs)
        # Equation 1 as it is written. A product has a faster gradient than a convolution's kernel.
        images = ops.cast(inputs, self.compute_dtype)
        patches = cut_patches(images, (rows, columns), self.patch_size)
        kernel = ops.reshape(self.projection.kernel, (-1, self.hidden_size))
        embeddings = ops.matmul(ops.reshape(patches, (-1, kernel.shape[0])), kernel)
        embeddings = ops.add(embeddings, self.projection.bias)
        return ops.reshape(embeddings, (-1, rows, columns, self.hidden_size))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, height, width, _ = input_shape
        size = self.patch_size
        if any(side is not None and side < size for side in (height, width)):
            raise ValueError(
                f"Expected images, or feature maps of a hybrid, of at least one patch, "
                f"{size} x {size}. Received: {height} x {width}. Enlarge the images."
            )
        grid_size = (None if side is None else side // size for side in (height, width))
        return batch, *grid_size, self.hidden_size


@keras.saving.register_keras_serializable(package="keras_vit")
class FlattenGrid(Layer):
    """Reads a grid row by row: (batch, rows, columns, channels) to (batch, tokens, channels)."""

    def call(self, grid: Tensor) -> Tensor:
        _, rows, columns, channels = ops.shape(grid)
        return ops.reshape(grid, (-1, rows * columns, channels))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, rows, columns, channels = input_shape
        return batch, None if None in (rows, columns) else rows * columns, channels
