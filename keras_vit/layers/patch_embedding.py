"""Images to patch embeddings (equation 1)."""

import keras
from keras import ops


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

    def __init__(self, hidden_size, patch_size, **kwargs):
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

    def build(self, input_shape):
        self._check_size(*input_shape[1:3])
        self.projection.build(input_shape)

    def call(self, inputs, training=False):
        self._check_size(*inputs.shape[1:3])
        if training and None not in inputs.shape[1:]:
            return self._project_patches(inputs)
        return self.projection(inputs)

    def _project_patches(self, inputs):
        # The product of equation 1 itself. The gradient of a convolution's kernel takes up to
        # ten times as long on a processor.
        size = self.patch_size
        _, rows, columns, _ = self.compute_output_shape(inputs.shape)
        channels = inputs.shape[-1]
        whole = ops.cast(inputs[:, : rows * size, : columns * size], self.compute_dtype)
        grid = ops.reshape(whole, (-1, rows, size, columns, size, channels))
        patches = ops.reshape(ops.transpose(grid, (0, 1, 3, 2, 4, 5)), (-1, size * size * channels))
        kernel = ops.reshape(self.projection.kernel, (-1, self.hidden_size))
        embeddings = ops.add(ops.matmul(patches, kernel), self.projection.bias)
        return ops.reshape(embeddings, (-1, rows, columns, self.hidden_size))

    def _check_size(self, height, width):
        if any(size is not None and size < self.patch_size for size in (height, width)):
            raise ValueError(
                f"Expected images, or feature maps of a hybrid, of at least one patch, "
                f"{self.patch_size} x {self.patch_size}. Received: {height} x {width}. "
                "Enlarge the images."
            )

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        rows = None if height is None else height // self.patch_size
        columns = None if width is None else width // self.patch_size
        return batch, rows, columns, self.hidden_size

    def get_config(self):
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

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, grid):
        _, rows, columns, channels = ops.shape(grid)
        return ops.reshape(grid, (-1, rows * columns, channels))

    def compute_output_shape(self, input_shape):
        batch, rows, columns, channels = input_shape
        tokens = None if rows is None or columns is None else rows * columns
        return batch, tokens, channels

    def get_config(self):
        # Keras's own record would hold the policy object that `dtype` may be.
        return super().get_config()
