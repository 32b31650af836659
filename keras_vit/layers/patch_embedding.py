"""Images to patch embeddings (equation 1)."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor


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
class PatchEmbedding(keras.layers.Layer):
    """Cuts an image or feature map into patches and projects each linearly.

    The projection of flattened patches by E in equation 1 is a convolution
    whose kernel and stride are the patch size; rows and columns that do not
    fill a patch are cropped.

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
        self.hidden_size = hidden_size
        self.patch_size = patch_size
        self.projection = keras.layers.Conv2D(
            hidden_size,
            patch_size,
            strides=patch_size,
            padding="valid",
            kernel_initializer="lecun_normal",
            data_format="channels_last",
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape: tuple) -> None:
        self._check_size(*input_shape[1:3])
        self.projection.build(input_shape)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        self._check_size(*inputs.shape[1:3])
        if not training or None in inputs.shape[1:]:
            return self.projection(inputs)
        # Equation 1 as it is written: the gradient of a product is another product, and much
        # faster than that of a convolution's kernel.
        _, rows, columns, _ = self.compute_output_shape(inputs.shape)
        patches = cut_patches(
            ops.cast(inputs, self.compute_dtype), (rows, columns), self.patch_size
        )
        kernel = ops.reshape(self.projection.kernel, (-1, self.hidden_size))
        embeddings = ops.matmul(ops.reshape(patches, (-1, kernel.shape[0])), kernel)
        embeddings = ops.add(embeddings, self.projection.bias)
        return ops.reshape(embeddings, (-1, rows, columns, self.hidden_size))

    def _check_size(self, height, width):
        if any(size is not None and size < self.patch_size for size in (height, width)):
            raise ValueError(
                f"Expected images, or feature maps of a hybrid, of at least one patch, "
                f"{self.patch_size} x {self.patch_size}. Received: {height} x {width}. "
                "Enlarge the images."
            )

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, height, width, _ = input_shape
        rows = None if height is None else height // self.patch_size
        columns = None if width is None else width // self.patch_size
        return batch, rows, columns, self.hidden_size

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_size": self.hidden_size,
            "patch_size": self.patch_size,
        }


@keras.saving.register_keras_serializable(package="keras_vit")
class FlattenGrid(keras.layers.Layer):
    """Reads a grid of embeddings row by row as a sequence of tokens.

    Call arguments:
        grid: (batch, rows, columns, channels).

    Returns:
        (batch, rows * columns, channels), in raster order.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.built = True

    def call(self, grid: Tensor) -> Tensor:
        _, rows, columns, channels = ops.shape(grid)
        return ops.reshape(grid, (-1, rows * columns, channels))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, rows, columns, channels = input_shape
        tokens = None if rows is None or columns is None else rows * columns
        return batch, tokens, channels

    def get_config(self) -> dict[str, Any]:
        # Keras's own record would hold the policy object that `dtype` may be.
        return super().get_config()
