"""Attention weights of a trained model."""

import keras
from keras import ops


class AttentionOfBlock(keras.layers.Layer):
    """The attention weights of an encoder block, on the block's own variables.

    Args:
        block: a built `EncoderBlock`.

    Call arguments:
        tokens: (batch, tokens, channels), the block's input.

    Returns:
        (batch, heads, tokens, tokens) float32.
    """

    def __init__(self, block):
        super().__init__(name=f"{block.name}_attention", dtype=block.dtype_policy)
        self.block = block
        self.built = True

    def call(self, tokens):
        return self.block.attention_probabilities(tokens)


def attention_tensors(model):
    """Returns the attention weights of every block as tensors of the model's graph.

    Args:
        model: a `VisionTransformer` with global attention.

    Returns:
        A list, one (batch, heads, tokens, tokens) float32 Keras tensor a block.

    Raises:
        ValueError: if the model's attention is axial.
    """
    if model.arguments["attention"] == "axial":
        raise ValueError(
            "Axial attention has one map for every row and column instead of one for the image. "
            'Use a model with attention="global".'
        )
    return [
        AttentionOfBlock(block)(tokens)
        for block, tokens in zip(model.blocks, model.block_inputs(), strict=True)
    ]


def attention_maps(model, images):
    """Returns the attention weights of every block, head and token (equation 6).

    Args:
        model: a `VisionTransformer` with global attention.
        images: (batch, height, width, 3) float32 in [-1, 1].

    Returns:
        (layers, batch, heads, tokens, tokens) float32 tensor; the last axis sums
        to 1. With a class token, it is token 0.
    """
    attention_model = keras.Model(model.input, attention_tensors(model))
    return ops.stack(attention_model(images, training=False))
