"""The position-sensitive axial attention of AxialResNet (Wang et al., 2020)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.typing import Tensor

AXES = ("height", "width")


def batch_normalization(
    name: str, axis: int = -1, **kwargs: Any
) -> keras.layers.BatchNormalization:
    """Returns batch normalization with the constants of the original."""
    return keras.layers.BatchNormalization(
        axis=axis, momentum=0.9, epsilon=1e-5, name=name, **kwargs
    )


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialAttention(keras.layers.Layer):
    """Attention within the columns or within the rows of a feature map.

    Queries, keys and values each meet a learned embedding of their distance:
    query i and key j have the logit q_i·k_j + q_i·r^q(i - j) + k_j·r^k(j - i),
    not divided by the root of the size, and query i gathers the values
    v_j and r^v(i - j). Queries, keys and values, each of the three summands of the
    logits and both of the output are batch normalized. In a group of c output
    channels, values have c channels, queries and keys c / 2.

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
        if axis not in AXES:
            raise ValueError(f"`axis` must be one of {AXES}. Received: axis={axis!r}")
        self.axis = axis
        self.num_groups = num_groups

    def build(self, input_shape: tuple) -> None:
        _, height, width, channels = input_shape
        if channels % (2 * self.num_groups):
            raise ValueError(
                "The number of channels must be a multiple of twice `num_groups`. "
                f"Received: channels={channels}, num_groups={self.num_groups}"
            )
        self.length = height if self.axis == "height" else width
        self.size = channels // self.num_groups
        self.projection = keras.layers.Dense(
            2 * channels,
            use_bias=False,
            kernel_initializer=keras.initializers.RandomNormal(stddev=channels**-0.5),
            dtype=self.dtype_policy,
            name="projection",
        )
        self.projection.build((None, channels))
        self.relative = self.add_weight(
            name="relative",
            shape=(2 * self.length - 1, 2 * self.size),
            initializer=keras.initializers.RandomNormal(stddev=self.size**-0.5),
        )
        policy = {"dtype": self.dtype_policy}
        self.projection_norm = batch_normalization("projection_norm", **policy)
        self.projection_norm.build((None, self.length, 2 * channels))
        self.similarity_norm = batch_normalization("similarity_norm", axis=1, **policy)
        self.similarity_norm.build((None, 3 * self.num_groups, self.length, self.length))
        self.output_norm = batch_normalization("output_norm", **policy)
        self.output_norm.build((None, self.length, 2 * channels))

    def _embeddings(self):
        """Returns the three tables by pair of positions, (length, length, channels) each."""
        position = np.arange(self.length)
        distance = position[:, None] - position[None, :] + self.length - 1
        pairs = ops.take(ops.cast(self.relative, self.compute_dtype), distance, axis=0)
        half = self.size // 2
        return pairs[..., :half], pairs[..., half : 2 * half], pairs[..., 2 * half :]

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        _, height, width, channels = inputs.shape
        lines = ops.transpose(inputs, (0, 2, 1, 3)) if self.axis == "height" else inputs
        lines = ops.reshape(lines, (-1, self.length, channels))
        x = self.projection_norm(self.projection(lines), training=training)
        x = ops.reshape(x, (-1, self.length, self.num_groups, 2 * self.size))
        x = ops.transpose(x, (0, 2, 1, 3))
        half = self.size // 2
        query, key, value = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        query_table, key_table, value_table = self._embeddings()

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

        gathered = ops.concatenate(
            [
                self._merge(ops.matmul(weights, value)),
                self._merge(ops.einsum("bgij,ijc->bgic", weights, value_table)),
            ],
            axis=-1,
        )
        gathered = self.output_norm(gathered, training=training)
        outputs = gathered[..., :channels] + gathered[..., channels:]
        if self.axis == "height":
            outputs = ops.reshape(outputs, (-1, width, height, channels))
            return ops.transpose(outputs, (0, 2, 1, 3))
        return ops.reshape(outputs, (-1, height, width, channels))

    def _merge(self, groups):
        """Puts the groups' channels side by side: (lines, length, channels)."""
        merged = ops.transpose(groups, (0, 2, 1, 3))
        return ops.reshape(merged, (-1, self.length, self.num_groups * self.size))

    def compute_output_spec(self, inputs: Tensor, training: bool = False) -> keras.KerasTensor:
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axis": self.axis, "num_groups": self.num_groups}
