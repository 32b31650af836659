"""Axial attention: Axial-ViT's block (appendix D.5) and AxialResNet's (Wang et al., 2020)."""

from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.initializers import RandomNormal, he_normal_fan_out
from keras_vit.layers.base import Layer
from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.layers.resnet_units import BottleneckUnit
from keras_vit.name_suggestions import require_one_of
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialEncoderBlock(Layer):
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
        self.row = self.inner(EncoderBlock, "row", **block_config)
        self.column = self.inner(EncoderBlock, "column", **block_config)

    def build(self, input_shape: tuple) -> None:
        rows, columns = self.grid_size
        self.row.build((None, columns, input_shape[-1]))
        self.column.build((None, rows, input_shape[-1]))

    def call(self, tokens: Tensor, training: bool = False) -> Tensor:
        rows, columns = self.grid_size
        channels = tokens.shape[-1]
        x = self.row(ops.reshape(tokens, (-1, columns, channels)), training=training)
        x = self.column(self._transpose(x, rows, columns, channels), training=training)
        x = self._transpose(x, columns, rows, channels)
        return ops.reshape(x, (-1, rows * columns, channels))

    @staticmethod
    def _transpose(lines, rows, columns, channels):
        grid = ops.reshape(lines, (-1, rows, columns, channels))
        return ops.reshape(ops.transpose(grid, (0, 2, 1, 3)), (-1, rows, channels))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.block_config}


def batch_normalization(name: str, axis: int = -1, **more: Any) -> keras.layers.BatchNormalization:
    """Returns batch normalization with the constants of the original."""
    return keras.layers.BatchNormalization(axis, momentum=0.9, epsilon=1e-5, name=name, **more)


def convolution(
    filters: int, kernel_size: int, strides: int = 1, **kwargs: Any
) -> keras.layers.Conv2D:
    """Returns a convolution without bias with the initialization of the original."""
    kwargs |= {"use_bias": False, "data_format": "channels_last"}
    kwargs["kernel_initializer"] = he_normal_fan_out()
    return keras.layers.Conv2D(filters, kernel_size, strides, **kwargs)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialAttention(Layer):
    """Attention within the columns or within the rows of a feature map.

    Queries, keys and values each meet a learned embedding of their distance: query i and key j have
    the logit q_i·k_j + q_i·r^q(i - j) + k_j·r^k(j - i), not divided by the root of the size. The
    output of query i is the weighted sum of v_j and r^v(i - j). Queries, keys and values, each of
    the three summands of the logits and both of the output are batch normalized. In a group of c
    output channels, values have c channels, queries and keys c / 2.

    Args:
        axis: "height", attention within columns, or "width", within rows.
        num_groups: int, heads; must divide the channels into even numbers.

    Call arguments:
        inputs: (batch, height, width, channels), of fixed height and width.
        training: bool, whether to normalize with the batch's statistics.

    Returns:
        A tensor like `inputs`.
    """

    def __init__(self, axis: str, num_groups: int = 8, **kwargs: Any):
        super().__init__(**kwargs)
        require_one_of("axis", axis, ("height", "width"))
        self.keep(locals())

    def build(self, input_shape: tuple) -> None:
        _, height, width, channels = input_shape
        if channels % (2 * self.num_groups):
            raise ValueError(
                "The number of channels must be a multiple of twice `num_groups`. "
                f"Received: channels={channels}, num_groups={self.num_groups}"
            )
        self.length = height if self.axis == "height" else width
        self.size = channels // self.num_groups
        dense, shape = partial(keras.layers.Dense, use_bias=False), (None, channels)
        initial = {"kernel_initializer": RandomNormal(stddev=channels**-0.5)}
        self.projection = self.inner(dense, "projection", 2 * channels, shape=shape, **initial)
        initial = {"initializer": RandomNormal(stddev=self.size**-0.5)}
        table = (2 * self.length - 1, 2 * self.size)
        self.relative = self.add_weight(name="relative", shape=table, **initial)
        norm, doubled = partial(self.inner, batch_normalization), (None, self.length, 2 * channels)
        logits = (None, 3 * self.num_groups, self.length, self.length)
        self.projection_norm = norm("projection_norm", shape=doubled)
        self.similarity_norm = norm("similarity_norm", axis=1, shape=logits)
        self.output_norm = norm("output_norm", shape=doubled)

    def _three(self, x):
        """Splits the last axis into the parts of queries, keys and values."""
        half = self.size // 2
        return x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        upright = self.axis == "height"
        grid = ops.transpose(inputs, (0, 2, 1, 3)) if upright else inputs
        _, rows, columns, channels = grid.shape
        lines = ops.reshape(grid, (-1, columns, channels))
        x = self.projection_norm(self.projection(lines), training=training)
        x = ops.reshape(x, (-1, self.length, self.num_groups, 2 * self.size))
        query, key, value = self._three(ops.transpose(x, (0, 2, 1, 3)))
        # The tables by pair of positions, (length, length, channels) each.
        position = np.arange(self.length)
        distance = position[:, None] - position[None, :] + self.length - 1
        query_table, key_table, value_table = (
            ops.take(table, distance, axis=0)
            for table in self._three(ops.cast(self.relative, self.compute_dtype))
        )

        similarity = ops.concatenate(
            [
                ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))),
                ops.einsum("bgic,ijc->bgij", query, query_table),
                ops.einsum("bgjc,jic->bgij", key, key_table),
            ],
            axis=1,
        )
        similarity = ops.cast(self.similarity_norm(similarity, training=training), "float32")
        content, from_query, from_key = ops.split(similarity, 3, axis=1)
        logits = content + from_query + from_key
        weights = ops.cast(ops.softmax(logits, axis=-1), self.compute_dtype)

        heads = ops.matmul(weights, value), ops.einsum("bgij,ijc->bgic", weights, value_table)
        outputs = ops.concatenate([self._combine_heads(each) for each in heads], axis=-1)
        outputs = self.output_norm(outputs, training=training)
        outputs = outputs[..., :channels] + outputs[..., channels:]
        outputs = ops.reshape(outputs, (-1, rows, columns, channels))
        return ops.transpose(outputs, (0, 2, 1, 3)) if upright else outputs

    def _combine_heads(self, heads):
        """Puts the heads' channels side by side: (lines, length, channels)."""
        heads = ops.transpose(heads, (0, 2, 1, 3))
        return ops.reshape(heads, (-1, self.length, self.num_groups * self.size))


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialUnit(BottleneckUnit):
    """1x1 convolution, attention along columns, then along rows, 1x1 convolution, shortcut.

    Args:
        filters: int, f; the unit's output has 2 f channels.
        strides: int, of an average pooling after the attention, and of the shortcut's convolution.
        num_groups: int, heads of the attention.

    Call arguments:
        inputs: (batch, height, width, channels), of fixed height and width.
        training: bool.

    Returns:
        (batch, height / strides, width / strides, 2 * filters).
    """

    expansion = 2

    def __init__(self, filters: int, strides: int = 1, num_groups: int = 8, **kwargs: Any):
        super().__init__(filters, strides, **kwargs)
        self.keep(locals())

    def build(self, input_shape: tuple) -> None:
        _, height, width, channels = input_shape
        if height % self.strides or width % self.strides:
            raise ValueError(
                f"The feature map's height and width must be multiples of {self.strides}. "
                f"Received: {height} x {width}. Use an image size that is a multiple of 32."
            )
        inner, groups = (None, height, width, self.filters), self.num_groups
        outer = (None, None, None, self.expansion * self.filters)
        norm, attention = batch_normalization, partial(self.inner, AxialAttention)
        self.conv_down = self.inner(convolution, "conv_down", self.filters, 1, shape=input_shape)
        self.bn1 = self.inner(norm, "bn1", shape=inner)
        self.height_attention = attention("height_attention", "height", groups, shape=inner)
        self.width_attention = attention("width_attention", "width", groups, shape=inner)
        self.conv_up = self.inner(convolution, "conv_up", outer[-1], 1, shape=inner)
        self.bn2 = self.inner(norm, "bn2", gamma_initializer="zeros", shape=outer)
        self.projects = self.strides != 1 or channels != outer[-1]
        if self.projects:
            sizes = (outer[-1], 1, self.strides)
            self.conv_proj = self.inner(convolution, "conv_proj", *sizes, shape=input_shape)
            self.bn_proj = self.inner(norm, "bn_proj", shape=outer)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        x = ops.relu(self.bn1(self.conv_down(inputs), training=training))
        x = self.height_attention(x, training=training)
        x = self.width_attention(x, training=training)
        if self.strides != 1:
            sizes = (self.strides, self.strides)  # of windows, and between them
            x = ops.average_pool(x, *sizes, "valid", data_format="channels_last")
        x = self.bn2(self.conv_up(ops.relu(x)), training=training)
        residual = inputs
        if self.projects:
            residual = self.bn_proj(self.conv_proj(inputs), training=training)
        return ops.relu(x + residual)
