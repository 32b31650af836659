"""A Vision Transformer for images of every size, on the same weights."""

from collections.abc import Sequence

import keras
from keras import ops

from keras_vit.layers import PatchEmbedding
from keras_vit.layers.position_embeddings import PositionEmbedding
from keras_vit.layers.position_variants import SinCosPosition2D, sincos_2d
from keras_vit.type_hints import Tensor


def corner_aligned(source: int, target: int | Tensor) -> Tensor:
    """Returns the (target, source) matrix of linear interpolation between aligned corners.

    Sample i of `target` lies at i * (source - 1) / (target - 1): what
    `scipy.ndimage.zoom(order=1)` does in the original code, without that
    function's defect of zeroing the last sample when rounding overshoots.
    `target` may be an int or a scalar integer tensor.
    """
    steps = ops.maximum(ops.cast(target, "float32") - 1, 1)
    position = ops.cast(ops.arange(target), "float32") * (source - 1) / steps
    position = ops.minimum(position, float(source - 1))
    distance = ops.abs(position[:, None] - ops.arange(source, dtype="float32")[None, :])
    return ops.relu(1 - distance)


def resized_table(
    positions: PositionEmbedding, rows: int | Tensor, columns: int | Tensor
) -> Tensor:
    """Returns the embedding of another grid, (1, tokens, channels) in float32.

    Learned ones are interpolated, sines and cosines are computed.
    """
    table, first = ops.cast(positions.table(), "float32"), int(positions.class_token)
    channels = table.shape[-1]
    if isinstance(positions, SinCosPosition2D):
        grid = ops.convert_to_tensor(sincos_2d(rows, columns, channels))
    else:
        grid = ops.reshape(table[0, first:], (*positions.grid_size, channels))
        grid = ops.einsum("ij,jkc->ikc", corner_aligned(positions.grid_size[0], rows), grid)
        grid = ops.einsum("ij,kjc->kic", corner_aligned(positions.grid_size[1], columns), grid)
    grid = ops.reshape(grid, (1, rows * columns, channels))
    return ops.concatenate([table[:, :first], grid], axis=1)


class ResizedPositions(keras.layers.Layer):
    """Adds the position embedding of a built layer for the grid of the stem.

    Call arguments:
        tokens: (batch, tokens, channels).
        stem: (batch, rows, columns, channels), of any grid.
    """

    def __init__(self, positions: PositionEmbedding):
        super().__init__(name=positions.name, dtype=positions.dtype_policy)
        self.positions = positions
        self.built = True

    def call(self, tokens: Tensor, stem: Tensor) -> Tensor:
        table = resized_table(self.positions, *ops.shape(stem)[1:3])
        return tokens + ops.cast(table, self.compute_dtype)

    def compute_output_spec(self, tokens: Tensor, stem: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(tokens.shape, self.compute_dtype)


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
    resized: dict[str, ResizedPositions] = {}

    def call(layer, *args, **kwargs):
        if isinstance(layer, PositionEmbedding):
            # One for each layer, as blocks may share it.
            return resized.setdefault(layer.name, ResizedPositions(layer))(*args, stem[0])
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
