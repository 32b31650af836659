"""The layouts of PyTorch's safetensors files, Hugging Face's and timm's: a row each.

To add one, describe its names in a table, and name the row in `TORCH_LAYOUTS`.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.layout import (
    CONVOLUTION,
    LINEAR,
    PLAIN,
    FileArray,
    FileLayout,
    Grid,
    Shapes,
)
from keras_vit.checkpoints.published_weights import DINOV3_LICENSE
from keras_vit.checkpoints.weights_of_model import BLOCK, DECODER, POSITION_TABLE, Weight
from keras_vit.layers.position_embeddings_2d import THETA

# {published name of a module or an array: the format's after the prefix}, {} for the number of the
# block. Weights of one name share the array.
Table = Mapping[str, str]

PROJECTED = re.compile(r".*/(query|key|value)/kernel")
LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}
# The modules of a block in the order of the forward pass, and LayerScale's, y = gamma * f(x).
_BLOCK = (
    "LayerNorm_0",
    *(f"MultiHeadDotProductAttention_1/{part}" for part in ("query", "key", "value", "out")),
    "LayerNorm_2",
    "MlpBlock_3/Dense_0",
    "MlpBlock_3/Dense_1",
    "LayerScale_0",
    "LayerScale_1",
)
# A gated MLP's modules, down(silu(gate(x)) * up(x)).
_GATED = tuple(f"MlpBlock_3/{part}" for part in ("Gate", "Up", "Down"))
# A distilled encoder's token in a Segmenter's file, and the name that it is read under.
_DISTILLATION, _REGISTER = "encoder.dist_token", "encoder.reg_token"
# The last projection of f and its LayerScale.
SCALES = {_BLOCK[4]: "LayerScale_0", _BLOCK[7]: "LayerScale_1", _GATED[2]: "LayerScale_1"}


@dataclasses.dataclass(frozen=True)
class TorchLayout(FileLayout):
    """A PyTorch format: names with dots, transposed kernels, images of any normalization.

    Attributes:
        title: in messages.
        tables: one for each spelling of the format. Files are written in the first.
        prefix: before the names of the encoder; a file can have any of `prefixes`.
        marks: names that tell the format, {} for the prefix.
        classifier: the name of the head.
        distillation_classifier: that of the second head, on the token of distillation.
        gelu: of models whose configuration states no activation.
        unused: regular expression of arrays that the model does not need, {} for the prefix.
        no_key_bias: whether no file of the format has a bias of keys.
        class_entry, layer_scale, interpolation, arguments, optional_biases, license: as in
            `FileLayout`.
        advice: for a model with weights that the format has no place for.
        spelling: index of this file's table.
    """

    title: str
    tables: tuple[Table, ...]
    marks: tuple[str, ...]
    prefix: str = ""
    prefixes: tuple[str, ...] = ("",)
    classifier: str = "classifier"
    distillation_classifier: str = "head_dist"
    gelu: str = "erf"
    unused: str = "$."
    class_entry: bool | None = None
    layer_scale: bool = False
    interpolation: str = "corners"
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    optional_biases: tuple[str, ...] = ()
    no_key_bias: bool = False
    license: str = ""
    advice: str = "Use an .npz or .keras file for this model."
    spelling: int = 0

    def detect(self, shapes: Shapes, grid: Grid | None = None) -> "TorchLayout | None":
        names = {name.removesuffix(".weight") for name in shapes}
        for prefix in self.prefixes:
            if all(mark.format(prefix) in shapes for mark in self.marks):
                # The spelling that most names of the file have.
                found = [
                    sum(prefix + name.format(0) in names for name in table.values())
                    for table in self.tables
                ]
                return dataclasses.replace(self, prefix=prefix, spelling=found.index(max(found)))
        return None

    @functools.cached_property
    def modules(self) -> dict[str, str]:
        """The file's names of modules and arrays by the published ones."""
        table = self.tables[self.spelling].items()
        return {published: self.prefix + name for published, name in table} | {
            "head": self.classifier,
            "head/distillation": self.distillation_classifier,
        }

    def owns(self, name: str) -> bool:
        return not re.match(self.unused.format(re.escape(self.prefix)), name)

    def spellings(self, part: str) -> tuple[str, ...]:
        inside = [own for name, own in self.modules.items() if f"{name}/".startswith(f"{part}/")]
        return tuple(inside) or super().spellings(part)

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        shared: dict[tuple[str, str], list[Weight]] = {}
        for weight in weights:
            shared.setdefault(self._names(weight.name), []).append(weight)
        return [_file_array(name, scale, tuple(held)) for (name, scale), held in shared.items()]

    def packed(self, weights: Sequence[Weight]) -> Iterator[tuple[str, np.ndarray]]:
        parts = {
            weight.name: part
            for weight in weights
            for part in self.optional_biases
            if BLOCK.fullmatch(weight.name) and weight.name.endswith(f"/{part}/bias")
        }
        used = {parts[w.name] for w in weights if w.name in parts and w.value().any()} | {None}
        if self.no_key_bias and "key" in used:
            raise CheckpointError(
                f"{self.title} has no place for a bias of keys, and the model's are not zero, as "
                f"training leaves them. {self.advice}"
            )
        return super().packed([each for each in weights if parts.get(each.name) in used])

    def require_table(self, entries: int, shapes: Shapes, grid: Grid | None) -> None:
        registers = math.prod(shapes.get(self.modules.get("reg", ""), (0,))[:2])
        patches = entries - registers - (self.modules.get("cls") in shapes)
        wanted = grid and math.prod(grid)
        if registers and patches > 0 and patches == (wanted or math.isqrt(patches) ** 2):
            raise CheckpointError(
                f"{entries} position embeddings seem to have entries of the {registers} register "
                "tokens, which models here do not take; if they have not, pass `position_grid`"
            )

    def _names(self, name):
        """Returns the names of a weight's array and of its LayerScale's, or ""."""
        decoder = DECODER if name.startswith(DECODER) else ""
        block = BLOCK.fullmatch(name.removeprefix(decoder))
        own, number = (decoder + block[2], block[1]) if block else (name, None)
        module, _, leaf = own.rpartition("/")
        if own in self.modules:
            return self.modules[own].format(number), ""
        if module not in self.modules or leaf not in LEAVES:
            raise CheckpointError(
                f"{self.title} has no place for the model's {name}: it holds plain Vision "
                f"Transformers. {self.advice}"
            )
        scale = self.modules.get(SCALES.get(module, ""), "")
        return f"{self.modules[module].format(number)}.{LEAVES[leaf]}", scale.format(number)


class SegmenterLayout(TorchLayout):
    """The original's names of a Segmenter, whose distilled encoders have a second class token.

    No head reads that token, so the token and its position act as one register token: their sum.
    """

    def converted(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        token, table = arrays.get(_DISTILLATION), arrays.get("encoder.pos_embed")
        if token is None or table is None or table.ndim != 3 or token.shape != table[:, 1:2].shape:
            return arrays
        left_out = (_DISTILLATION, "encoder.head_dist.weight", "encoder.head_dist.bias")
        found = {name: array for name, array in arrays.items() if name not in left_out}
        found["encoder.pos_embed"] = np.delete(table, 1, axis=1)
        return found | {_REGISTER: token + table[:, 1:2]}

    def arguments_of(self, normalization: np.ndarray) -> Mapping[str, Any]:
        return {"padding_color": tuple((2 * normalization[0] - 1).tolist())}

    def require_table(self, entries: int, shapes: Shapes, grid: Grid | None) -> None:
        """Takes any table: the register token was made of its second entry."""

    def packed(self, weights: Sequence[Weight]) -> Iterator[tuple[str, np.ndarray]]:
        arrays = dict(super().packed(weights))
        token = arrays.pop(_REGISTER, None)
        if token is not None and token.shape[1] != 1:
            raise CheckpointError(
                f"{self.title} has a place for one token beside the class token, that of "
                f"distillation. Received: {token.shape[1]} register tokens. {self.advice}"
            )
        if token is not None:
            table = arrays["encoder.pos_embed"]
            zero = np.zeros_like(table[:, :1])
            arrays["encoder.pos_embed"] = np.concatenate([table[:, :1], zero, table[:, 1:]], 1)
            arrays[_DISTILLATION] = token
        yield from sorted(arrays.items())


class MetaDINOv3Layout(TorchLayout):
    """Meta's own names of DINOv3, which are read.

    A mask is a factor of the biases of queries, keys and values, and 0 for keys. The periods of the
    rotation, in bfloat16, are computed here.
    """

    def converted(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = dict(arrays)
        for name in arrays:
            bias = name.removesuffix("_mask")
            if bias != name and bias in found and found[bias].shape == arrays[name].shape:
                mask = found.pop(name)
                found[bias] = np.where(mask == 0, mask, found[bias] * mask)
        periods = found.pop("rope_embed.periods", None)
        if periods is not None:
            expected = THETA ** (np.arange(np.size(periods)) / np.size(periods))
            if not np.allclose(np.ravel(periods), expected, rtol=1e-2):
                raise CheckpointError(
                    f"Expected rotary positions of base {THETA:g}. The file's rope_embed.periods "
                    "are others. Nothing was loaded."
                )
        return found

    def packed(self, weights: Sequence[Weight]) -> Iterator[tuple[str, np.ndarray]]:
        raise CheckpointError(
            f"{self.title} are read, not written: use HUGGING_FACE_DINOV3 or TIMM_DINOV3."
        )


def _file_array(name, scale, weights):
    shape, published = tuple(weights[0].shape), weights[0].name
    packing = LINEAR
    if published == "embedding/kernel":
        rows, columns, inputs, width = shape
        shape, packing = (width, inputs, rows, columns), CONVOLUTION
    elif published.endswith("/kernel"):
        inputs = shape[0] if PROJECTED.fullmatch(published) else math.prod(shape[:-1])
        shape = (len(weights) * math.prod(shape) // inputs, inputs)
    elif published.endswith("/bias"):
        shape = (len(weights) * math.prod(shape),)
    else:
        packing = PLAIN
        # A table of PyTorch's `Embedding` has no axis of images.
        shape = shape[1:] if published == POSITION_TABLE and name.endswith(".weight") else shape
    return FileArray(name, shape, weights, packing, scale)


def in_blocks(blocks: str, names: str, gated: str = "") -> Table:
    """Returns a table of a block's modules of these names, LayerScale's last, if any.

    `gated` are the names of a gated MLP's gate, up and down.
    """
    pairs = [*zip(_BLOCK, names.split(), strict=False), *zip(_GATED, gated.split(), strict=False)]
    return {published: f"{blocks}.{{}}.{own}" for published, own in pairs}


_EMBEDDINGS = {
    "cls": "embeddings.cls_token",
    POSITION_TABLE: "embeddings.position_embeddings",
    "embedding": "embeddings.patch_embeddings.projection",
    "Transformer/encoder_norm": "layernorm",
}
_ATTENTION = (
    "attention.attention.query attention.attention.key attention.attention.value "
    "attention.output.dense",
    # As transformers 5 calls the same modules in memory.
    "attention.q_proj attention.k_proj attention.v_proj attention.o_proj",
)

HUGGING_FACE_VIT = TorchLayout(  # `ViTModel`, `ViTForImageClassification`
    title="Hugging Face's safetensors",
    class_entry=True,
    prefix="vit.",
    prefixes=("vit.", "deit.", ""),
    marks=("{}embeddings.patch_embeddings.projection.weight",),
    tables=tuple(
        {
            **_EMBEDDINGS,
            "pre_logits": "pooler.dense",
            **in_blocks(blocks, f"layernorm_before {attention} layernorm_after {mlp}"),
        }
        for blocks, attention, mlp in (
            ("encoder.layer", _ATTENTION[0], "intermediate.dense output.dense"),
            ("layers", _ATTENTION[1], "mlp.fc1 mlp.fc2"),
        )
    ),
)

HUGGING_FACE_DEIT = dataclasses.replace(  # `DeiTForImageClassificationWithTeacher`, `DeiTModel`
    HUGGING_FACE_VIT,
    title="Hugging Face's DeiT safetensors",
    prefix="deit.",
    marks=(*HUGGING_FACE_VIT.marks, "{}embeddings.distillation_token"),
    tables=tuple(
        {**table, "dist": "embeddings.distillation_token"} for table in HUGGING_FACE_VIT.tables
    ),
    classifier="cls_classifier",
    distillation_classifier="distillation_classifier",
)

HUGGING_FACE_DINOV2 = TorchLayout(
    # `Dinov2Model`, with registers and with a classifier as well, which reads the class token
    # beside the mean of the patches: classifier="token_gap".
    title="Hugging Face's DINOv2 safetensors",
    class_entry=True,
    layer_scale=True,
    prefix="dinov2.",
    prefixes=("dinov2.", "dinov2_with_registers.", ""),
    marks=("{}encoder.layer.0.layer_scale1.lambda1",),
    tables=tuple(
        {
            **_EMBEDDINGS,
            "reg": "embeddings.register_tokens",
            **in_blocks(
                "encoder.layer",
                f"norm1 {attention} norm2 mlp.fc1 mlp.fc2 layer_scale1.lambda1 "
                "layer_scale2.lambda1",
                "mlp.weights_in mlp.weights_in mlp.weights_out",
            ),
        }
        for attention in _ATTENTION
    ),
    unused=r"{}embeddings\.mask_token$",
)

_SIGLIP = {
    POSITION_TABLE: "embeddings.position_embedding.weight",
    "embedding": "embeddings.patch_embedding",
    "Transformer/encoder_norm": "post_layernorm",
    **in_blocks(
        "encoder.layers",
        "layer_norm1 self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj "
        "layer_norm2 mlp.fc1 mlp.fc2",
    ),
}
_POOL = "MAPHead_0/MultiHeadDotProductAttention_0"

HUGGING_FACE_SIGLIP = TorchLayout(  # the image tower, whose `head` is our `MAPHead_0`
    title="Hugging Face's SigLIP safetensors",
    class_entry=False,
    gelu="tanh",
    prefix="vision_model.",
    prefixes=("vision_model.", ""),
    marks=("{}embeddings.patch_embedding.weight", "{}embeddings.position_embedding.weight"),
    tables=(
        {
            **_SIGLIP,
            "MAPHead_0/probe": "head.probe",
            # PyTorch's own attention has its three projections in one array.
            **{
                f"{_POOL}/{projection}/{leaf}": f"head.attention.in_proj_{LEAVES[leaf]}"
                for projection in ("query", "key", "value")
                for leaf in ("kernel", "bias")
            },
            f"{_POOL}/out": "head.attention.out_proj",
            "MAPHead_0/LayerNorm_0": "head.layernorm",
            "MAPHead_0/MlpBlock_0/Dense_0": "head.mlp.fc1",
            "MAPHead_0/MlpBlock_0/Dense_1": "head.mlp.fc2",
        },
    ),
    unused=r"(?!{}|classifier\.)",
)
HUGGING_FACE_SIGLIP_CLASSIFIER = dataclasses.replace(
    HUGGING_FACE_SIGLIP,
    marks=(*HUGGING_FACE_SIGLIP.marks, "classifier.weight"),
    tables=(_SIGLIP,),
    unused=r"(?!{0}|classifier\.)|{0}head\.",
    advice="SiglipForImageClassification takes the mean of the patches and leaves the attention "
    'pooling in its file unused. Build the model with classifier="gap".',
)

_TIMM_BLOCK = "norm1 attn.qkv attn.qkv attn.qkv attn.proj norm2 mlp.fc1 mlp.fc2"
_TIMM = {
    "cls": "cls_token",
    "dist": "dist_token",
    "reg": "reg_token",
    POSITION_TABLE: "pos_embed",
    "embedding": "patch_embed.proj",
    "Transformer/encoder_norm": "norm",
    "pre_logits": "pre_logits.fc",
    "MAPHead_0/probe": "attn_pool.latent",
    f"{_POOL}/query": "attn_pool.q",
    f"{_POOL}/key": "attn_pool.kv",
    f"{_POOL}/value": "attn_pool.kv",
    f"{_POOL}/out": "attn_pool.proj",
    "MAPHead_0/LayerNorm_0": "attn_pool.norm",
    "MAPHead_0/MlpBlock_0/Dense_0": "attn_pool.mlp.fc1",
    "MAPHead_0/MlpBlock_0/Dense_1": "attn_pool.mlp.fc2",
    **in_blocks("blocks", f"{_TIMM_BLOCK} ls1.gamma ls2.gamma", "mlp.fc1 mlp.fc1 mlp.fc2"),
}
TIMM = TorchLayout(
    title="timm's safetensors",
    marks=("patch_embed.proj.weight",),
    # DINOv2's own files have another name for register tokens.
    tables=(_TIMM, {**_TIMM, "reg": "register_tokens"}),
    classifier="head",
    unused="mask_token$",
)

_DINOV3: dict[str, Any] = {
    "class_entry": True,
    "layer_scale": True,
    "arguments": {"position_embedding": "rope_2d", "layer_norm_epsilon": 1e-5},
    "optional_biases": ("query", "key", "value"),
    "license": DINOV3_LICENSE,
}
HUGGING_FACE_DINOV3 = TorchLayout(
    title="Hugging Face's DINOv3 safetensors",
    marks=("{}embeddings.patch_embeddings.weight",),
    tables=tuple(
        {
            **_EMBEDDINGS,
            "reg": "embeddings.register_tokens",
            "embedding": "embeddings.patch_embeddings",
            "Transformer/encoder_norm": "norm",
            **in_blocks(
                blocks,
                f"norm1 {_ATTENTION[1]} norm2 mlp.up_proj mlp.down_proj layer_scale1.lambda1 "
                "layer_scale2.lambda1",
                "mlp.gate_proj mlp.up_proj mlp.down_proj",
            ),
        }
        for blocks in ("layer", "model.layer")  # in files, and in memory
    ),
    unused=r"{}embeddings\.mask_token$",
    **_DINOV3,
)
TIMM_DINOV3 = dataclasses.replace(
    HUGGING_FACE_DINOV3,
    title="timm's DINOv3 safetensors",
    marks=("cls_token", "reg_token", "blocks.0.gamma_1"),
    tables=(
        {
            **_TIMM,
            **in_blocks("blocks", f"{_TIMM_BLOCK} gamma_1 gamma_2", "mlp.fc1_g mlp.fc1_x mlp.fc2"),
            # Models whose names end with _qkvb have the first and the last.
            f"{_BLOCK[1]}/bias": "blocks.{}.attn.q_bias",
            f"{_BLOCK[2]}/bias": "blocks.{}.attn.k_bias",
            f"{_BLOCK[3]}/bias": "blocks.{}.attn.v_bias",
        },
    ),
    classifier="head",
    unused="$.",
    arguments={**_DINOV3["arguments"], "global_pool": "avg"},
    no_key_bias=True,
)

META_DINOV3 = MetaDINOv3Layout(
    title="Meta's names of DINOv3",
    marks=("cls_token", "storage_tokens"),
    tables=(
        {
            **_TIMM,
            "reg": "storage_tokens",
            **in_blocks("blocks", f"{_TIMM_BLOCK} ls1.gamma ls2.gamma", "mlp.w1 mlp.w2 mlp.w3"),
        },
    ),
    # Norms of small crops have no part in evaluation.
    unused=r"mask_token$|local_cls_norm\.",
    **_DINOV3,
)

_SEGMENTER_MASK = {
    **{published: f"encoder.{name}" for published, name in _TIMM.items() if "MAP" not in published},
    **{
        f"{DECODER}{published}": name
        for published, name in {
            **in_blocks("decoder.blocks", _TIMM_BLOCK),
            "classes": "decoder.cls_emb",
            "projection": "decoder.proj_dec",
            "norm": "decoder.decoder_norm",
            "patch_matrix": "decoder.proj_patch",
            "class_matrix": "decoder.proj_classes",
            "mask_norm": "decoder.mask_norm",
            "head": "decoder.head",
        }.items()
    },
}
SEGMENTER_MASK = SegmenterLayout(
    title="Segmenter's safetensors",
    marks=("encoder.patch_embed.proj.weight", "decoder.cls_emb"),
    tables=(_SEGMENTER_MASK,),
    class_entry=True,
    interpolation="centers",
    arguments={"layer_norm_epsilon": 1e-5},
    unused=r"encoder\.head(_dist)?\.",
)
SEGMENTER_LINEAR = dataclasses.replace(
    SEGMENTER_MASK, marks=("encoder.patch_embed.proj.weight", "decoder.head.weight")
)

# In the order in which they are tried.
TORCH_LAYOUTS = (
    SEGMENTER_MASK,
    SEGMENTER_LINEAR,
    HUGGING_FACE_DINOV3,
    TIMM_DINOV3,
    META_DINOV3,
    HUGGING_FACE_DINOV2,
    HUGGING_FACE_SIGLIP_CLASSIFIER,
    HUGGING_FACE_SIGLIP,
    HUGGING_FACE_DEIT,
    HUGGING_FACE_VIT,
    TIMM,
)
