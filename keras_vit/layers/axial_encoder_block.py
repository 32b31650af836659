"""The Axial-ViT block: attention along rows, then along columns (appendix D.5)."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialEncoderBlock(keras.layers.Layer):
    """Two encoder blocks, the first within each row, the second within each column.

    Args:
        grid_size: (rows, columns) of patches.
        block_config: the arguments of `EncoderBlock`, shared by both.

    Call arguments:
        tokens: (batch, rows * columns, channels) in raster order, no class token.
        training: bool.

    Returns:
        A tensor like `tokens`.
    """

    def __init__(
        self,
        grid_size: tuple[int, int],
        *,
        name: str | None = None,
        trainable: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
        **block_config: Any,
    ):
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self.grid_size = tuple(grid_size)
        self.block_config = block_config
        self.row = EncoderBlock(**block_config, dtype=self.dtype_policy, name="row")
        self.column = EncoderBlock(**block_config, dtype=self.dtype_policy, name="column")

    def build(self, input_shape: tuple) -> None:
        rows, columns = self.grid_size
        self.row.build((None, columns, input_shape[-1]))
        self.column.build((None, rows, input_shape[-1]))

    def call(self, tokens: Tensor, training: bool = False) -> Tensor:
        return self.along_axes(
            tokens,
            lambda lines: self.row(lines, training=training),
            lambda lines: self.column(lines, training=training),
        )

    def along_axes(self, tokens: Tensor, row: Callable, column: Callable) -> Tensor:
        """Applies `row` to every row of patches, a sequence of tokens, then `column` likewise."""
        rows, columns = self.grid_size
        channels = tokens.shape[-1]
        x = row(ops.reshape(tokens, (-1, columns, channels)))
        x = column(self._transpose(x, rows, columns, channels))
        x = self._transpose(x, columns, rows, channels)
        return ops.reshape(x, (-1, rows * columns, channels))

    @staticmethod
    def _transpose(lines, rows, columns, channels):
        grid = ops.reshape(lines, (-1, rows, columns, channels))
        return ops.reshape(ops.transpose(grid, (0, 2, 1, 3)), (-1, rows, channels))

    def compute_output_spec(self, tokens: Tensor, training: bool = False) -> keras.KerasTensor:
        return keras.KerasTensor(tokens.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "grid_size": self.grid_size, **self.block_config}
