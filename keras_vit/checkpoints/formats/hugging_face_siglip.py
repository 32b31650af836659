"""Hugging Face's safetensors of SigLIP and SigLIP 2, the image tower."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keras_vit.checkpoints.array_files import Source
from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.formats.folded_source import FoldedSource
from keras_vit.checkpoints.formats.torch_layout import (
    LEAVES,
    joint_array,
    modules_after,
    separate_arrays,
)
from keras_vit.checkpoints.variable_names import POSITION_TABLE, Weight

POSITIONS = "embeddings.position_embedding.weight"

MODULES = {
    POSITION_TABLE: POSITIONS,
    "embedding": "embeddings.patch_embedding",
    "Transformer/encoder_norm": "post_layernorm",
    "MAPHead_0/probe": "head.probe",
    "MAPHead_0/MultiHeadDotProductAttention_0/out": "head.attention.out_proj",
    "MAPHead_0/LayerNorm_0": "head.layernorm",
    "MAPHead_0/MlpBlock_0/Dense_0": "head.mlp.fc1",
    "MAPHead_0/MlpBlock_0/Dense_1": "head.mlp.fc2",
}

BLOCK = {
    "LayerNorm_0": "layer_norm1",
    "LayerNorm_2": "layer_norm2",
    "MultiHeadDotProductAttention_1/query": "self_attn.q_proj",
    "MultiHeadDotProductAttention_1/key": "self_attn.k_proj",
    "MultiHeadDotProductAttention_1/value": "self_attn.v_proj",
    "MultiHeadDotProductAttention_1/out": "self_attn.out_proj",
    "MlpBlock_3/Dense_0": "mlp.fc1",
    "MlpBlock_3/Dense_1": "mlp.fc2",
}

# Attention pooling is PyTorch's own attention, with its three projections in one array.
JOINT = re.compile(r"MAPHead_0/MultiHeadDotProductAttention_0/(?:query|key|value)/(kernel|bias)")


@dataclass(frozen=True)
class HuggingFaceSigLIPLayout(FileLayout):
    """The arrays of the image tower of a SigLIP file; those of the text tower are left.

    The tower pools with `classifier="map"`. `SiglipForImageClassification` does not use that
    pooling, which its files hold all the same: its logits are those of `classifier="gap"`.

    Attributes:
        prefix: "vision_model.", or "" for the tower by itself.
        classified: bool, whether the file has a classifier.
    """

    title = "Hugging Face's SigLIP safetensors"
    patch_embedding = "embeddings.patch_embedding"
    is_torch = True
    prefix: str = "vision_model."
    classified: bool = False

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "HuggingFaceSigLIPLayout | None":
        """Returns the layout of a file, or None if it is not one of SigLIP's."""
        for prefix in ("vision_model.", ""):
            if f"{prefix}{cls.patch_embedding}.weight" in shapes and prefix + POSITIONS in shapes:
                return cls(prefix, "classifier.weight" in shapes)
        return None

    def owns(self, name: str) -> bool:
        if self.classified and name.startswith(f"{self.prefix}head."):
            return False
        return name.startswith((self.prefix, "classifier."))

    def spellings(self, part: str) -> tuple[str, ...]:
        # Their "head" is attention pooling.
        if part == "head":
            return ("head/kernel", "head/bias", "classifier")
        return super().spellings(part)

    def folded(self, source: Source) -> Source:
        """Returns the file with its table of positions as others have it, (1, entries, width)."""
        name = self.prefix + POSITIONS
        shape = (1, *source.shapes[name])
        return FoldedSource(source, {name: lambda table, read: table[None]}, set(), {name: shape})

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        if self.classified and any(weight.name.startswith("MAPHead_0/") for weight in weights):
            raise CheckpointError(
                "SiglipForImageClassification takes the mean of the patches and leaves the "
                'attention pooling in its file unused. Build the model with classifier="gap". '
                "Nothing was loaded."
            )
        modules = modules_after(self.prefix, MODULES)
        separate: list[Weight] = []
        joint: dict[str, list[Weight]] = {}
        for weight in weights:
            match = JOINT.fullmatch(weight.name)
            if match:
                name = f"{self.prefix}head.attention.in_proj_{LEAVES[match[1]]}"
                joint.setdefault(name, []).append(weight)
            else:
                separate.append(weight)
        blocks = f"{self.prefix}encoder.layers"
        return [
            *separate_arrays(separate, modules, blocks, BLOCK, self.title),
            *(joint_array(name, parts) for name, parts in joint.items()),
        ]
