"""The variables of a model under their published names.

The names are those of the original's files: "Transformer/encoderblock_0/…" for
the Vision Transformer, "resnet/block1/unit01/…" for BiT. What the original has
no name for (Axial-ViT, the position embeddings of appendix D.3, "reg" for register tokens)
continues them.
"""

from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from keras_vit.models.resnet_v2 import ResNetV2
from keras_vit.models.vision_transformer import VisionTransformer

POSITION_TABLE = "Transformer/posembed_input/pos_embedding"


@dataclass(frozen=True)
class PositionTable:
    """What it takes to resize a table of position embeddings.

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
    yield from _dense("embedding", layers["embedding"].projection)
    if "class_token" in layers:
        token = layers["class_token"].token
        yield Weight("cls", token, token.shape)
    if "register_tokens" in layers:
        registers = layers["register_tokens"].registers
        yield Weight("reg", registers, registers.shape)
    if "position_embedding" in layers:
        yield from _positions("Transformer/posembed_input", layers["position_embedding"])
    for index, block in enumerate(model.blocks):
        name = f"Transformer/encoderblock_{index}"
        every = layers.get(f"position_embedding_{index:02d}")
        if every is not None:
            yield from _positions(f"{name}/posembed_input", every)
        if a["attention"] == "axial":
            yield from _block(f"{name}/row", block.row)
            yield from _block(f"{name}/column", block.column)
        else:
            yield from _block(name, block)
    yield from _norm("Transformer/encoder_norm", layers["encoder_norm"])
    if a["classifier"] == "map":
        yield from _map_head(layers["pool"])
    for name in ("pre_logits", "head"):
        if name in layers:
            yield from _dense(name, layers[name])


def _dense(name, layer):
    yield Weight(f"{name}/kernel", layer.kernel, layer.kernel.shape)
    if layer.bias is not None:
        yield Weight(f"{name}/bias", layer.bias, layer.bias.shape)


def _norm(name, layer, scale="scale", bias="bias"):
    yield Weight(f"{name}/{scale}", layer.gamma, layer.gamma.shape)
    yield Weight(f"{name}/{bias}", layer.beta, layer.beta.shape)


def _positions(name, layer):
    if hasattr(layer, "embedding"):
        table = PositionTable(layer.grid_size, layer.class_token)
        yield Weight(f"{name}/pos_embedding", layer.embedding, layer.embedding.shape, table)
    elif hasattr(layer, "columns"):
        yield Weight(f"{name}/columns", layer.columns, layer.columns.shape, "line")
        yield Weight(f"{name}/rows", layer.rows, layer.rows.shape, "line")
        if layer.class_token:
            yield Weight(f"{name}/cls", layer.first, layer.first.shape)


def _attention(name, layer):
    heads, size = layer.num_heads, layer.head_size
    for part in ("query", "key", "value"):
        dense = getattr(layer, part)
        kernel, bias = dense.kernel, dense.bias
        yield Weight(f"{name}/{part}/kernel", kernel, (kernel.shape[0], heads, size))
        yield Weight(f"{name}/{part}/bias", bias, (heads, size))
    kernel, bias = layer.out.kernel, layer.out.bias
    yield Weight(f"{name}/out/kernel", kernel, (heads, size, kernel.shape[1]))
    yield Weight(f"{name}/out/bias", bias, bias.shape)


def _mlp(name, layer):
    yield from _dense(f"{name}/Dense_0", layer.hidden_dense)
    yield from _dense(f"{name}/Dense_1", layer.output_dense)


def _block(name, block):
    yield from _norm(f"{name}/LayerNorm_0", block.attention_norm)
    attention = f"{name}/MultiHeadDotProductAttention_1"
    yield from _attention(attention, block.attention)
    if block.relative_positions:
        table = block.attention.relative_position.embedding
        yield Weight(f"{attention}/relative_embedding", table, table.shape)
    yield from _norm(f"{name}/LayerNorm_2", block.mlp_norm)
    yield from _mlp(f"{name}/MlpBlock_3", block.mlp)


def _map_head(layer):
    yield Weight("MAPHead_0/probe", layer.probe, layer.probe.shape)
    yield from _attention("MAPHead_0/MultiHeadDotProductAttention_0", layer)
    yield from _norm("MAPHead_0/LayerNorm_0", layer.norm)
    yield from _mlp("MAPHead_0/MlpBlock_0", layer.mlp)


def _kernel(name, layer):
    return Weight(f"{name}/kernel", layer.kernel, layer.kernel.shape)


def _hybrid_stem(layers, num_layers):
    yield _kernel("conv_root", layers["conv_root"])
    yield from _norm("gn_root", layers["gn_root"])
    for stage, units in enumerate(num_layers, 1):
        for number in range(1, units + 1):
            unit, name = layers[f"block{stage}_unit{number}"], f"block{stage}/unit{number}"
            for part in ("1", "2", "3", *(("_proj",) if unit.projects else ())):
                yield _kernel(f"{name}/conv{part}", getattr(unit, f"conv{part}"))
                yield from _norm(f"{name}/gn{part}", getattr(unit, f"gn{part}"))


def _resnet_v2(model):
    layers = {layer.name: layer for layer in model.layers}
    conv = "standardized_conv2d"
    yield _kernel(f"resnet/root_block/{conv}", layers["conv_root"])
    for stage, units in enumerate(model.arguments["num_layers"], 1):
        for number in range(1, units + 1):
            unit = layers[f"block{stage}_unit{number:02d}"]
            name = f"resnet/block{stage}/unit{number:02d}"
            for letter, index in zip("abc", (1, 2, 3), strict=True):
                norm = getattr(unit, f"gn{index}")
                yield from _norm(f"{name}/{letter}/group_norm", norm, "gamma", "beta")
                yield _kernel(f"{name}/{letter}/{conv}", getattr(unit, f"conv{index}"))
            if unit.projects:
                yield _kernel(f"{name}/a/proj/{conv}", unit.conv_proj)
    yield from _norm("resnet/group_norm", layers["group_norm"], "gamma", "beta")
    if "head" in layers:
        kernel, bias = layers["head"].kernel, layers["head"].bias
        yield Weight("resnet/head/conv2d/kernel", kernel, (1, 1, *kernel.shape))
        yield Weight("resnet/head/conv2d/bias", bias, bias.shape)
