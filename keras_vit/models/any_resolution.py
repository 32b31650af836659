"""A Vision Transformer for images of every size, on the same weights."""

from collections.abc import Sequence

import keras

from keras_vit.layers import PatchEmbedding
from keras_vit.layers.position_embeddings import PositionEmbedding
from keras_vit.type_hints import Tensor


def any_resolution(model: keras.Model, outputs: str | Sequence[str]) -> keras.Model:
    """Does what `VisionTransformer.any_resolution` says."""
    if model.arguments["attention"] == "axial":
        raise ValueError("Axial attention needs one image size: its blocks know the grid.")
    if model.arguments["position_embedding"] == "relative":
        raise ValueError("Relative positions need one image size: their table has its length.")
    named = {**model.endpoints, "output": model.output}
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    if not set(names) <= set(named):
        named.update(model.attention_endpoints)
    if not set(names) <= set(named):
        raise ValueError(f"Expected names of {', '.join(named)}. Received: {outputs!r}")
    result = named[outputs] if isinstance(outputs, str) else {n: named[n] for n in names}
    stem: list[Tensor] = []

    def call(layer, *args, **kwargs):
        if isinstance(layer, PositionEmbedding):
            return layer(*args, stem=stem[0])
        output = layer(*args, **kwargs)
        if isinstance(layer, PatchEmbedding):
            stem.append(output)
        return output

    return keras.models.clone_model(
        keras.Model(model.input, result, name=f"{model.name}_any_resolution"),
        input_tensors=keras.Input(
            (None, None, model.input.shape[-1]), dtype="float32", name="images"
        ),
        clone_function=lambda layer: layer,
        call_function=call,
    )
