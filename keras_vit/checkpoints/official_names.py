"""The variables of a model under their published names.

The names are those of the original's files: "Transformer/encoderblock_0/…" for
the Vision Transformer, "resnet/block1/unit01/…" for BiT. Those of Axial-ViT, the position
embeddings of appendix D.3 and register tokens ("reg") are our own.
"""

from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from keras_vit.models.resnets import ResNetV2
from keras_vit.models.vision_transformer import VisionTransformer

POSITION_TABLE = "Transformer/posembed_input/pos_embedding"


@dataclass(frozen=True)
class PositionTable:
    """The grid of a table of position embeddings, to resize it.

    Attributes:
        grid_size: (rows, columns) of the model.
        class_token: bool, whether the first entry belongs to the class token.
    """

    grid_size: tuple[int, int]
    class_token: bool


@dataclass(frozen=True)
class Weight:
    """One variable of a model and its array in the original's files.

    Attributes:
        name: the published name.
        variable: the `keras.Variable`.
        shape: the published shape, which may split or join the variable's axes.
        positions: a `PositionTable` for position embeddings in raster order,
            "line" for those of rows or of columns alone, else None.
    """

    name: str
    variable: keras.Variable
    shape: tuple[int, ...]
    positions: PositionTable | str | None = None

    def value(self) -> np.ndarray:
        """Returns the variable as a float32 array of the published shape."""
        value = np.asarray(ops.convert_to_numpy(self.variable), np.float32)
        return np.reshape(value, self.shape)


def weights_of(model: keras.Model) -> list[Weight]:
    """Returns every variable of a model under its published name.

    Args:
        model: a `VisionTransformer` or `ResNetV2`.

    Returns:
        A list of `Weight`.

    Raises:
        TypeError: if the model is of another class.
    """
    if isinstance(model, VisionTransformer):
        return list(_vision_transformer(model))
    if isinstance(model, ResNetV2):
        return list(_resnet_v2(model))
    raise TypeError(
        "Checkpoints are read and written for keras_vit.VisionTransformer and "
        f"keras_vit.ResNetV2. Received: {type(model).__name__}. Use `model.save` and "
        "`keras.saving.load_model` for other models."
    )


def _vision_transformer(model):
    a = model.arguments
    layers = {layer.name: layer for layer in model.layers}
    if a["resnet"]:
        yield from _hybrid_stem(layers, a["resnet"]["num_layers"])
    yield from _layer("embedding", layers["embedding"].projection)
    if "class_token" in layers:
        yield _weight("cls", layers["class_token"].token)
    if "register_tokens" in layers:
        yield _weight("reg", layers["register_tokens"].registers)
    if "position_embedding" in layers:
        yield from _positions("Transformer/posembed_input", layers["position_embedding"])
    for index, block in enumerate(model.blocks):
        name = f"Transformer/encoderblock_{index}"
        if f"position_embedding_{index:02d}" in layers:
            own = layers[f"position_embedding_{index:02d}"]
            yield from _positions(f"{name}/posembed_input", own)
        if a["attention"] == "axial":
            yield from _block(f"{name}/row", block.row)
            yield from _block(f"{name}/column", block.column)
        else:
            yield from _block(name, block)
    yield from _layer("Transformer/encoder_norm", layers["encoder_norm"])
    if a["classifier"] == "map":
        pool = layers["pool"]
        yield _weight("MAPHead_0/probe", pool.probe)
        yield from _attention("MAPHead_0/MultiHeadDotProductAttention_0", pool)
        yield from _layer("MAPHead_0/LayerNorm_0", pool.norm)
        yield from _mlp("MAPHead_0/MlpBlock_0", pool.mlp)
    for name in ("pre_logits", "head"):
        if name in layers:
            yield from _layer(name, layers[name])


def _weight(name, variable, positions=None):
    return Weight(name, variable, variable.shape, positions)


def _layer(name, layer, scale="scale", bias="bias"):
    """Yields the weights of a dense layer, a convolution or a normalization."""
    if hasattr(layer, "gamma"):
        yield _weight(f"{name}/{scale}", layer.gamma)
        yield _weight(f"{name}/{bias}", layer.beta)
    else:
        yield _weight(f"{name}/kernel", layer.kernel)
        if layer.bias is not None:
            yield _weight(f"{name}/bias", layer.bias)


def _positions(name, layer):
    if hasattr(layer, "embedding"):
        table = PositionTable(layer.grid_size, layer.class_token)
        yield _weight(f"{name}/pos_embedding", layer.embedding, table)
    elif hasattr(layer, "columns"):
        yield _weight(f"{name}/columns", layer.columns, "line")
        yield _weight(f"{name}/rows", layer.rows, "line")
        if layer.class_token:
            yield _weight(f"{name}/cls", layer.first)


def _attention(name, layer):
    heads, size = layer.num_heads, layer.head_size
    for part in ("query", "key", "value"):
        dense = getattr(layer, part)
        yield Weight(f"{name}/{part}/kernel", dense.kernel, (dense.kernel.shape[0], heads, size))
        yield Weight(f"{name}/{part}/bias", dense.bias, (heads, size))
    kernel = layer.out.kernel
    yield Weight(f"{name}/out/kernel", kernel, (heads, size, kernel.shape[1]))
    yield _weight(f"{name}/out/bias", layer.out.bias)


def _mlp(name, layer):
    yield from _layer(f"{name}/Dense_0", layer.hidden_dense)
    yield from _layer(f"{name}/Dense_1", layer.output_dense)


def _block(name, block):
    yield from _layer(f"{name}/LayerNorm_0", block.attention_norm)
    attention = f"{name}/MultiHeadDotProductAttention_1"
    yield from _attention(attention, block.attention)
    if block.relative_positions:
        table = block.attention.relative_position.embedding
        yield _weight(f"{attention}/relative_embedding", table)
    yield from _layer(f"{name}/LayerNorm_2", block.mlp_norm)
    yield from _mlp(f"{name}/MlpBlock_3", block.mlp)


def _units(layers, num_layers, digits):
    """Yields (published name, `BottleneckUnit`), the number of the unit in so many digits."""
    for stage, units in enumerate(num_layers, 1):
        for number in (f"unit{unit:0{digits}d}" for unit in range(1, units + 1)):
            yield f"block{stage}/{number}", layers[f"block{stage}_{number}"]


def _hybrid_stem(layers, num_layers):
    yield from _layer("conv_root", layers["conv_root"])
    yield from _layer("gn_root", layers["gn_root"])
    for name, unit in _units(layers, num_layers, 1):
        for part in ("1", "2", "3", *(("_proj",) if unit.projects else ())):
            yield from _layer(f"{name}/conv{part}", getattr(unit, f"conv{part}"))
            yield from _layer(f"{name}/gn{part}", getattr(unit, f"gn{part}"))


def _resnet_v2(model):
    layers = {layer.name: layer for layer in model.layers}
    conv, norm = "standardized_conv2d", "group_norm"
    yield from _layer(f"resnet/root_block/{conv}", layers["conv_root"])
    for name, unit in _units(layers, model.arguments["num_layers"], 2):
        for letter, index in zip("abc", (1, 2, 3), strict=True):
            part = f"resnet/{name}/{letter}"
            yield from _layer(f"{part}/{norm}", getattr(unit, f"gn{index}"), "gamma", "beta")
            yield from _layer(f"{part}/{conv}", getattr(unit, f"conv{index}"))
        if unit.projects:
            yield from _layer(f"resnet/{name}/a/proj/{conv}", unit.conv_proj)
    yield from _layer(f"resnet/{norm}", layers["group_norm"], "gamma", "beta")
    if "head" in layers:
        kernel = layers["head"].kernel
        yield Weight("resnet/head/conv2d/kernel", kernel, (1, 1, *kernel.shape))
        yield _weight("resnet/head/conv2d/bias", layers["head"].bias)
