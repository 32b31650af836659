"""The arrays of PyTorch's safetensors: of Hugging Face, and of timm."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from keras_vit.checkpoints.npz_and_safetensors import CheckpointError, Grid, Source
from keras_vit.checkpoints.npz_file_layouts import BLOCK, FileArray, FileLayout, Shapes
from keras_vit.checkpoints.weights_of_model import POSITION_TABLE, Weight

PROJECTED = re.compile(r".*/(query|key|value)/kernel")
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
LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}
# LayerScale and the last projection of f.
SCALED = {"LayerScale_0": _BLOCK[4], "LayerScale_1": _BLOCK[7]}


@dataclass(frozen=True)
class TorchLayout(FileLayout):
    """A PyTorch format: names with dots, transposed kernels, images of any normalization."""

    prefixes: ClassVar[tuple[str, ...]] = ("",)  # that the names of an encoder can have
    marks: ClassVar[tuple[str, ...]]  # names after the prefix that tell the format
    # One for each spelling: {published name of a module or an array: the format's after the
    # prefix}, {} for the number of the block. Weights of one name share the array.
    tables: ClassVar[tuple[Mapping[str, str], ...]]
    classifier: ClassVar[str] = "classifier"  # the name of the head
    gelu: ClassVar[str] = "erf"  # of models whose configuration states no activation
    unused: ClassVar[tuple[str, ...]] = ()  # arrays that pre-training alone needs
    # This file's prefix, the table with it, and whether there is a head.
    prefix: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    classified: bool = False

    @classmethod
    def detect(cls, shapes: Shapes, grid: Grid | None = None) -> "TorchLayout | None":
        # The spelling that most names of the file have.
        for prefix in cls.prefixes:
            if all(prefix + mark in shapes for mark in cls.marks):
                names = {name.removesuffix(".weight") for name in shapes}
                tables = [{n: prefix + own for n, own in table.items()} for table in cls.tables]
                found = [sum(own.format(0) in names for own in t.values()) for t in tables]
                modules = {**tables[found.index(max(found))], "head": cls.classifier}
                return cls(prefix, modules, f"{cls.classifier}.weight" in shapes)
        return None

    def owns(self, name: str) -> bool:
        return name not in [self.prefix + unused for unused in self.unused]

    def spellings(self, part: str) -> tuple[str, ...]:
        return *super().spellings(part), self.modules.get(part, part)

    def patch_arrays(self) -> tuple[str, str, tuple[int, ...]]:
        module = self.modules["embedding"]
        return f"{module}.weight", f"{module}.bias", (2, 3, 1, 0)

    def fold(self, source: Source) -> None:
        """Folds LayerScale into the projections; gives positions a batch axis.

        Raises CheckpointError if only some of the projections have a LayerScale.
        """
        arrays = source.arrays
        places = [
            (self.modules[scale].format(block), self.modules[scaled].format(block))
            for scale, scaled in SCALED.items()
            if scale in self.modules
            for block in range(len(arrays))
            if f"{self.modules[scaled].format(block)}.weight" in arrays
        ]
        missing = sorted(scale for scale, _ in places if scale not in arrays)
        if 0 < len(missing) < len(places):
            raise CheckpointError(
                f"{source.path} lacks some of its LayerScale: {', '.join(missing)}. Nothing was "
                "loaded.",
                missing,
            )
        for scale, module in places:
            targets = [f"{module}.weight", f"{module}.bias"]
            if all(map(source.has_numbers, (scale, *targets))):
                gamma = arrays[scale]
                if all(arrays[target].shape[:1] == gamma.shape for target in targets):
                    for target in targets:
                        arrays[target] = (arrays[target].T * gamma).T
                    del arrays[scale]
        positions = self.modules[POSITION_TABLE]
        if len(source.shapes.get(positions, ())) == 2:
            arrays[positions] = arrays[positions][None]

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        shared: dict[str, list[Weight]] = {}
        for weight in weights:
            shared.setdefault(self._name(weight.name), []).append(weight)
        return [_torch_array(name, *parts) for name, parts in shared.items()]

    def _name(self, name):
        block = BLOCK.fullmatch(name)
        module, _, leaf = (block[2] if block else name).rpartition("/")
        if name in self.modules:
            return self.modules[name]
        if module not in self.modules or leaf not in LEAVES:
            raise CheckpointError(
                f"{self.title} has no place for the model's {name}: it holds plain Vision "
                "Transformers. Use an .npz or .keras file for this model."
            )
        return f"{self.modules[module].format(block and block[1])}.{LEAVES[leaf]}"


def in_blocks(blocks: str, names: str) -> dict[str, str]:
    """Returns a table of a block's modules of these names, LayerScale's last, if any."""
    pairs = zip(_BLOCK, names.split(), strict=False)
    return {published: f"{blocks}.{{}}.{own}" for published, own in pairs}


def _torch_array(name, weight, *others):
    """Returns the `FileArray` of weights, of projections one after the other, as PyTorch's."""
    shape, parts = tuple(weight.shape), (weight, *others)
    if weight.name == "embedding/kernel":
        rows, columns, inputs, width = shape
        return FileArray(name, (width, inputs, rows, columns), parts, _transpose_convolution)
    if weight.name.endswith("/kernel"):
        inputs = shape[0] if PROJECTED.fullmatch(weight.name) else math.prod(shape[:-1])
        outputs = len(parts) * math.prod(shape) // inputs
        return FileArray(name, (outputs, inputs), parts, _split_projections)
    if weight.name.endswith("/bias"):
        return FileArray(name, (len(parts) * math.prod(shape),), parts, _split_projections)
    return FileArray(name, shape, parts)


def _split_projections(array, *weights):
    """Unpacks linear layers' (out, in) weights, or their biases."""
    parts = np.split(array, len(weights))
    return [
        np.reshape(np.ascontiguousarray(part.T), weight.shape)
        for part, weight in zip(parts, weights, strict=True)
    ]


def _transpose_convolution(array, weight):
    """Unpacks a convolution's (out, in, rows, columns) weight."""
    return [np.ascontiguousarray(array.transpose(2, 3, 1, 0))]


MODULES = {
    "cls": "embeddings.cls_token",
    "Transformer/posembed_input/pos_embedding": "embeddings.position_embeddings",
    "embedding": "embeddings.patch_embeddings.projection",
    "Transformer/encoder_norm": "layernorm",
}

ATTENTION = (
    "attention.attention.query attention.attention.key attention.attention.value "
    "attention.output.dense"
)
# As transformers 5 calls the same modules in memory.
RENAMED_ATTENTION = "attention.q_proj attention.k_proj attention.v_proj attention.o_proj"


@dataclass(frozen=True)
class HuggingFaceLayout(TorchLayout):
    """The arrays of a file of `ViTModel`, `ViTForImageClassification`, or DeiT's."""

    title = "Hugging Face's safetensors"
    class_entry = True
    prefixes = ("vit.", "deit.", "")
    marks = ("embeddings.patch_embeddings.projection.weight",)
    tables = tuple(
        {
            **MODULES,
            "pre_logits": "pooler.dense",
            **in_blocks(blocks, f"layernorm_before {attention} layernorm_after {mlp}"),
        }
        for blocks, attention, mlp in (
            ("encoder.layer", ATTENTION, "intermediate.dense output.dense"),
            ("layers", RENAMED_ATTENTION, "mlp.fc1 mlp.fc2"),
        )
    )


DINOV2_BLOCK = "norm1 {} norm2 mlp.fc1 mlp.fc2 layer_scale1.lambda1 layer_scale2.lambda1"


@dataclass(frozen=True)
class HuggingFaceDINOv2Layout(TorchLayout):
    """The arrays of a file of `Dinov2Model`, with registers and with a classifier as well.

    Their classifier reads the class token beside the mean of the patches: a model with
    `classifier="token_gap"`.
    """

    title = "Hugging Face's DINOv2 safetensors"
    class_entry = True
    prefixes = ("dinov2.", "dinov2_with_registers.", "")
    marks = ("encoder.layer.0.layer_scale1.lambda1",)
    tables = tuple(
        {
            **MODULES,
            "reg": "embeddings.register_tokens",
            **in_blocks("encoder.layer", DINOV2_BLOCK.format(attention)),
        }
        for attention in (ATTENTION, RENAMED_ATTENTION)
    )
    unused = ("embeddings.mask_token",)


SIGLIP_TABLE = {
    "Transformer/posembed_input/pos_embedding": "embeddings.position_embedding.weight",
    "embedding": "embeddings.patch_embedding",
    "Transformer/encoder_norm": "post_layernorm",
    "MAPHead_0/probe": "head.probe",
    # PyTorch's own attention has its three projections in one array.
    **{
        f"MAPHead_0/MultiHeadDotProductAttention_0/{projection}/{leaf}": (
            f"head.attention.in_proj_{LEAVES[leaf]}"
        )
        for projection in ("query", "key", "value")
        for leaf in ("kernel", "bias")
    },
    "MAPHead_0/MultiHeadDotProductAttention_0/out": "head.attention.out_proj",
    "MAPHead_0/LayerNorm_0": "head.layernorm",
    "MAPHead_0/MlpBlock_0/Dense_0": "head.mlp.fc1",
    "MAPHead_0/MlpBlock_0/Dense_1": "head.mlp.fc2",
    **in_blocks(
        "encoder.layers",
        "layer_norm1 self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj "
        "layer_norm2 mlp.fc1 mlp.fc2",
    ),
}


@dataclass(frozen=True)
class HuggingFaceSigLIPLayout(TorchLayout):
    """The arrays of the image tower of a SigLIP file; those of the text tower are left.

    The tower pools with `classifier="map"`. `SiglipForImageClassification` does not use that
    pooling, which its files hold all the same: its logits are those of `classifier="gap"`.
    """

    title = "Hugging Face's SigLIP safetensors"
    class_entry = False
    gelu = "tanh"
    prefixes = ("vision_model.", "")
    marks = ("embeddings.patch_embedding.weight", "embeddings.position_embedding.weight")
    tables = (SIGLIP_TABLE,)

    def owns(self, name: str) -> bool:
        if self.classified and name.startswith(f"{self.prefix}head."):
            return False
        return name.startswith((self.prefix, "classifier."))

    def spellings(self, part: str) -> tuple[str, ...]:
        # Their "head" is attention pooling.
        if part == "head":
            return ("head/kernel", "head/bias", "classifier")
        return super().spellings(part)

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        if self.classified and any(weight.name.startswith("MAPHead_0/") for weight in weights):
            raise CheckpointError(
                "SiglipForImageClassification takes the mean of the patches and leaves the "
                'attention pooling in its file unused. Build the model with classifier="gap". '
                "Nothing was loaded."
            )
        return super().file_arrays(weights)


POOL = "MAPHead_0/MultiHeadDotProductAttention_0"
TABLE = {
    "cls": "cls_token",
    "reg": "reg_token",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
    "embedding": "patch_embed.proj",
    "Transformer/encoder_norm": "norm",
    "pre_logits": "pre_logits.fc",
    "MAPHead_0/probe": "attn_pool.latent",
    f"{POOL}/query": "attn_pool.q",
    f"{POOL}/key": "attn_pool.kv",
    f"{POOL}/value": "attn_pool.kv",
    f"{POOL}/out": "attn_pool.proj",
    "MAPHead_0/LayerNorm_0": "attn_pool.norm",
    "MAPHead_0/MlpBlock_0/Dense_0": "attn_pool.mlp.fc1",
    "MAPHead_0/MlpBlock_0/Dense_1": "attn_pool.mlp.fc2",
    **in_blocks(
        "blocks",
        "norm1 attn.qkv attn.qkv attn.qkv attn.proj norm2 mlp.fc1 mlp.fc2 ls1.gamma ls2.gamma",
    ),
}


@dataclass(frozen=True)
class TimmLayout(TorchLayout):
    """The arrays of a timm file: queries, keys and values of a block in one."""

    title = "timm's safetensors"
    marks = ("patch_embed.proj.weight",)
    # DINOv2's own files have another name for register tokens.
    tables = (TABLE, {**TABLE, "reg": "register_tokens"})
    classifier = "head"
    unused = ("mask_token",)


# In the order in which they are tried.
TORCH_FORMATS = (HuggingFaceDINOv2Layout, HuggingFaceSigLIPLayout, HuggingFaceLayout, TimmLayout)
