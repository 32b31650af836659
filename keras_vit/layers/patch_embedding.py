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
        self.projection.build(input_shape)

    def call(self, inputs):
        return self.projection(inputs)

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
