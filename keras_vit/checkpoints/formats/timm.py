"""The safetensors of timm's `VisionTransformer`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.formats.torch_layout import file_array, no_place
from keras_vit.checkpoints.variable_names import Weight

LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}

STEM = {
    "cls": "cls_token",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
    "embedding": "patch_embed.proj",
    "Transformer/encoder_norm": "norm",
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

PROJECTION = re.compile(
    r"Transformer/encoderblock_(\d+)/MultiHeadDotProductAttention_1/(?:query|key|value)/(\w+)"
)


def _split_kernel(array, *weights):
    parts = np.split(array, len(weights))
    return [
        np.reshape(np.ascontiguousarray(part.T), w.shape)
        for part, w in zip(parts, weights, strict=True)
    ]


def _split_bias(array, *weights):
    parts = np.split(array, len(weights))
    return [np.reshape(part, w.shape) for part, w in zip(parts, weights, strict=True)]


@dataclass(frozen=True)
class TimmLayout(FileLayout):
    """The arrays of a timm file: queries, keys and values of a block in one."""

    title = "timm's safetensors"
    aliases: ClassVar = {"cls": ("cls_token",)}

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "TimmLayout | None":
        """Returns the layout of a file, or None if it is not one of timm's."""
        return cls() if "patch_embed.proj.weight" in shapes else None

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        arrays: list[FileArray] = []
        projections: dict[tuple[str, str], list[Weight]] = {}
        for weight in weights:
            projection = PROJECTION.fullmatch(weight.name)
            if projection:
                projections.setdefault((projection[1], projection[2]), []).append(weight)
            else:
                arrays.append(file_array(self._name(weight), weight))
        for (block, leaf), parts in projections.items():
            name = f"blocks.{block}.attn.qkv.{LEAVES[leaf]}"
            width = parts[0].shape[-1] * parts[0].shape[-2]
            if leaf == "kernel":
                shape, unpack = (3 * width, parts[0].shape[0]), _split_kernel
            else:
                shape, unpack = (3 * width,), _split_bias
            arrays.append(FileArray(name, shape, tuple(parts), unpack))
        return arrays

    def _name(self, weight):
        module, _, leaf = weight.name.rpartition("/")
        if weight.name in STEM:
            return STEM[weight.name]
        if module in STEM:
            return f"{STEM[module]}.{LEAVES[leaf]}"
        block = re.fullmatch(r"Transformer/encoderblock_(\d+)/(.+)", module)
        if not block or block[2] not in BLOCK or leaf not in LEAVES:
            raise no_place(weight, "timm's format")
        return f"blocks.{block[1]}.{BLOCK[block[2]]}.{LEAVES[leaf]}"
