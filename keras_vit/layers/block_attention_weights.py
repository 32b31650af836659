"""The attention weights of a block (equation 6), for whoever wants to look at them."""

import keras

from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.typing import Tensor


class AttentionOfBlock(keras.layers.Layer):
    """The attention weights of an encoder block, on the block's own variables.

    Args:
        block: a built `EncoderBlock`.

    Call arguments:
        tokens: (batch, tokens, channels), the block's input.

    Returns:
        (batch, heads, tokens, tokens) float32; rows sum to 1.
    """

    def __init__(self, block: EncoderBlock):
        super().__init__(name=f"{block.name}_attention", dtype=block.dtype_policy)
        self.block = block
        self.built = True

    def call(self, tokens: Tensor) -> Tensor:
        return self.block.attention_probabilities(tokens)
