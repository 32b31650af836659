"""The safetensors of timm's `VisionTransformer`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.formats.torch_layout import LEAVES, file_array, torch_name
from keras_vit.checkpoints.variable_names import Weight

MODULES = {
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
                name = torch_name(weight, MODULES, "blocks", BLOCK, self.title)
                arrays.append(file_array(name, weight))
        for (block, leaf), parts in projections.items():
            name = f"blocks.{block}.attn.qkv.{LEAVES[leaf]}"
            width = parts[0].shape[-1] * parts[0].shape[-2]
            shape = (3 * width, parts[0].shape[0]) if leaf == "kernel" else (3 * width,)
            arrays.append(FileArray(name, shape, tuple(parts), _split))
        return arrays


def _split(array, *weights):
    parts = np.split(array, len(weights))
    return [
        np.reshape(np.ascontiguousarray(part.T), w.shape)
        for part, w in zip(parts, weights, strict=True)
    ]
