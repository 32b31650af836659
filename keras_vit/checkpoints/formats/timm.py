"""The safetensors of timm's `VisionTransformer`: DeiT, DeiT III, DINOv2 and SigLIP as well."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from keras_vit.checkpoints.array_files import Source
from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.formats.folded_source import fold_layer_scale
from keras_vit.checkpoints.formats.torch_layout import (
    LEAVES,
    file_array,
    joint_array,
    refuse_distilled,
    refuse_gated_mlp,
    torch_name,
)
from keras_vit.checkpoints.variable_names import Weight

MODULES = {
    "cls": "cls_token",
    "reg": "reg_token",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
    "embedding": "patch_embed.proj",
    "Transformer/encoder_norm": "norm",
    "MAPHead_0/probe": "attn_pool.latent",
    "MAPHead_0/MultiHeadDotProductAttention_0/query": "attn_pool.q",
    "MAPHead_0/MultiHeadDotProductAttention_0/out": "attn_pool.proj",
    "MAPHead_0/LayerNorm_0": "attn_pool.norm",
    "MAPHead_0/MlpBlock_0/Dense_0": "attn_pool.mlp.fc1",
    "MAPHead_0/MlpBlock_0/Dense_1": "attn_pool.mlp.fc2",
    "pre_logits": "pre_logits.fc",
    "head": "head",
}

BLOCK = {
    "LayerNorm_0": "norm1",
    "LayerNorm_2": "norm2",
    "MultiHeadDotProductAttention_1/out": "attn.proj",
    "MlpBlock_3/Dense_0": "mlp.fc1",
    "MlpBlock_3/Dense_1": "mlp.fc2",
}

# The projections that share an array: of a block, and of attention pooling.
JOINT = re.compile(
    r"Transformer/encoderblock_(\d+)/MultiHeadDotProductAttention_1/(?:query|key|value)/(\w+)"
    r"|MAPHead_0/MultiHeadDotProductAttention_0/(?:key|value)/(\w+)"
)

# The last projections of the two branches that LayerScale scales.
SCALED = {"ls1": "attn.proj", "ls2": "mlp.fc2"}
LAYER_SCALE = re.compile(r"(blocks\.\d+)\.(ls[12])\.gamma")


@dataclass(frozen=True)
class TimmLayout(FileLayout):
    """The arrays of a timm file: queries, keys and values of a block in one.

    DeiT, DeiT III, DINOv2 and SigLIP have the same ones. LayerScale is folded into the
    projections that it scales, and what pre-training alone used, DINOv2's `mask_token`, is left.

    Attributes:
        registers: the name of the register tokens: DINOv2's own files have another than timm's.
    """

    title = "timm's safetensors"
    aliases: ClassVar = {"cls": ("cls_token",), "reg": ("reg_token", "register_tokens")}
    patch_embedding = "patch_embed.proj"
    is_torch = True
    registers: str = "reg_token"

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "TimmLayout | None":
        """Returns the layout of a file, or None if it is not one of timm's."""
        if f"{cls.patch_embedding}.weight" not in shapes:
            return None
        return cls("register_tokens" if "register_tokens" in shapes else "reg_token")

    def owns(self, name: str) -> bool:
        return name != "mask_token"

    def folded(self, source: Source) -> Source:
        refuse_distilled(source)
        refuse_gated_mlp(source, "mlp.fc1.weight", "mlp.fc2.weight")
        gammas = filter(None, map(LAYER_SCALE.fullmatch, source.shapes))
        return fold_layer_scale(source, {g[0]: f"{g[1]}.{SCALED[g[2]]}" for g in gammas})

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        modules = {**MODULES, "reg": self.registers}
        arrays: list[FileArray] = []
        joint: dict[str, list[Weight]] = {}
        for weight in weights:
            match = JOINT.fullmatch(weight.name)
            if match:
                block, leaf, pooling_leaf = match.groups()
                module = f"blocks.{block}.attn.qkv" if block else "attn_pool.kv"
                joint.setdefault(f"{module}.{LEAVES[leaf or pooling_leaf]}", []).append(weight)
            else:
                name = torch_name(weight, modules, "blocks", BLOCK, self.title)
                arrays.append(file_array(name, weight, 2 if "/query/" in weight.name else 1))
        return arrays + [joint_array(name, parts) for name, parts in joint.items()]
