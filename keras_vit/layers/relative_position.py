"""Relative position embeddings (appendix D.3)."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativePosition(keras.layers.Layer):
    """Attention logits from the signed one-dimensional distance of query and key.

    Adds q·R[p_q - p_k] to the logits, where the table R has one row for each of
    the 2T - 1 distances between T tokens. It is shared by the heads of a layer.

    Call arguments:
        query: (batch, heads, queries, head_size), already divided by the root of
            the head size. `queries` is T, or 1 for the first token alone.

    Returns:
        (batch, heads, queries, T) summands of the attention logits.
    """

    def build(self, input_shape: tuple) -> None:
        _, _, tokens, head_size = input_shape
        if tokens is None:
            raise ValueError(
                "Relative positions need a fixed number of tokens. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        self.tokens = tokens
        self.embedding = self.add_weight(
            name="embedding",
            shape=(2 * tokens - 1, head_size),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, query: Tensor) -> Tensor:
        tokens, heads = self.tokens, query.shape[1]
        # Rows reversed, so that column k - q + T - 1 of a query's row is key k.
        by_distance = ops.matmul(query, ops.transpose(ops.flip(self.embedding, axis=0)))
        if query.shape[2] == 1:
            return by_distance[..., tokens - 1 :]
        # Reading the rows with a stride one shorter than they are long shifts each
        # by its query's position: a gather without indices, which TPUs lack.
        flat = ops.reshape(by_distance, (-1, heads, tokens * (2 * tokens - 1)))
        flat = flat[..., tokens - 1 : tokens - 1 + tokens * (2 * tokens - 2)]
        rows = ops.reshape(flat, (-1, heads, tokens, 2 * tokens - 2))
        return rows[..., :tokens]

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*input_shape[:3], self.tokens)

    def get_config(self) -> dict[str, Any]:
        # Keras's own record would hold the policy object that `dtype` may be.
        return super().get_config()
