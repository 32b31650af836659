"""A Vision Transformer's graph for images of any size, and the attention weights of a block."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_vit.layers import EncoderBlock, PatchEmbedding
from keras_vit.layers.position_embeddings import PositionEmbedding
from keras_vit.models.image_model import ImageModel
from keras_vit.type_hints import Tensor


def at_any_resolution(
    model: ImageModel,
    outputs: str | Sequence[str],
    arguments: Mapping[str, Any],
    padding: keras.layers.Layer | None = None,
    keep: type | tuple[()] = (),
) -> keras.Model:
    """Returns what `VisionTransformer.any_resolution` does.

    With `padding`, a layer of images, positions are interpolated between centers instead of
    aligned corners; layers of the type `keep` take the images before it. `arguments` are those of
    the Vision Transformer.
    """
    if arguments["attention"] == "axial":
        raise ValueError("Axial attention needs one image size: its blocks know the grid.")
    if arguments["position_embedding"] == "relative":
        raise ValueError("Relative positions need one image size: their table has its length.")
    graph = model.up_to(outputs)
    graph.name = f"{model.name}_any_resolution"
    images = keras.Input((None, None, graph.input.shape[-1]), name="images")
    padded = images if padding is None else padding(images)
    stem: list[Tensor] = []

    def call(layer, *args, **kwargs):
        if isinstance(layer, PositionEmbedding):
            return layer(*args, stem=stem[0], centers=padding is not None)
        if not isinstance(layer, keep):
            args = tuple(padded if each is images else each for each in args)
        output = layer(*args, **kwargs)
        if isinstance(layer, PatchEmbedding):
            stem.append(output)
        return output

    return keras.models.clone_model(
        graph,
        input_tensors=images,
        clone_function=lambda layer: layer,
        call_function=call,
    )


class AttentionOfBlock(keras.layers.Layer):
    """The attention weights of a built encoder block, from its input; shares its variables."""

    def __init__(self, block: EncoderBlock):
        super().__init__(name=f"{block.name}_attention", dtype=block.dtype_policy)
        self.block = block
        self.built = True

    def call(self, tokens: Tensor, rotary_grid: Tensor | None = None) -> Tensor:
        tokens = self.block.attention_norm(tokens)
        return self.block.attention.probabilities(tokens, rotary_grid=rotary_grid)
