"""Hugging Face's safetensors of `ViTModel` and `ViTForImageClassification`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.formats.torch_layout import file_array, no_place
from keras_vit.checkpoints.variable_names import Weight

LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}

STEM = {
    "cls": "embeddings.cls_token",
    "Transformer/posembed_input/pos_embedding": "embeddings.position_embeddings",
    "embedding": "embeddings.patch_embeddings.projection",
    "Transformer/encoder_norm": "layernorm",
    "pre_logits": "pooler.dense",
}

BLOCK = {
    "LayerNorm_0": "layernorm_before",
    "LayerNorm_2": "layernorm_after",
    "MultiHeadDotProductAttention_1/query": "attention.attention.query",
    "MultiHeadDotProductAttention_1/key": "attention.attention.key",
    "MultiHeadDotProductAttention_1/value": "attention.attention.value",
    "MultiHeadDotProductAttention_1/out": "attention.output.dense",
    "MlpBlock_3/Dense_0": "intermediate.dense",
    "MlpBlock_3/Dense_1": "output.dense",
}

# What transformers 5 calls the same modules in memory.
RENAMED_BLOCK = {
    **BLOCK,
    "MultiHeadDotProductAttention_1/query": "attention.q_proj",
    "MultiHeadDotProductAttention_1/key": "attention.k_proj",
    "MultiHeadDotProductAttention_1/value": "attention.v_proj",
    "MultiHeadDotProductAttention_1/out": "attention.o_proj",
    "MlpBlock_3/Dense_0": "mlp.fc1",
    "MlpBlock_3/Dense_1": "mlp.fc2",
}


@dataclass(frozen=True)
class HuggingFaceLayout(FileLayout):
    """The arrays of a Hugging Face file.

    Attributes:
        prefix: "vit.", or "" for a model saved without its classifier.
        renamed: bool, whether the blocks have the names of transformers 5.
    """

    title = "Hugging Face's safetensors"
    aliases: ClassVar = {
        "head": ("classifier",),
        "pre_logits": ("vit.pooler", "pooler"),
        "cls": ("vit.embeddings.cls_token", "embeddings.cls_token"),
    }
    prefix: str = "vit."
    renamed: bool = False

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "HuggingFaceLayout | None":
        """Returns the layout of a file, or None if it is not one of Hugging Face's."""
        for prefix in ("vit.", ""):
            if f"{prefix}embeddings.patch_embeddings.projection.weight" in shapes:
                return cls(prefix, any(n.startswith(f"{prefix}layers.") for n in shapes))
        return None

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        arrays = []
        for weight in weights:
            projected = re.search(r"/(query|key|value)/", weight.name)
            arrays.append(file_array(self._name(weight), weight, 2 if projected else 1))
        return arrays

    def _name(self, weight):
        module, _, leaf = weight.name.rpartition("/")
        if weight.name in STEM:
            return self.prefix + STEM[weight.name]
        if module == "head":
            return f"classifier.{LEAVES[leaf]}"
        if module in STEM:
            return f"{self.prefix}{STEM[module]}.{LEAVES[leaf]}"
        block = re.fullmatch(r"Transformer/encoderblock_(\d+)/(.+)", module)
        names = RENAMED_BLOCK if self.renamed else BLOCK
        if not block or block[2] not in names or leaf not in LEAVES:
            raise no_place(weight, "Hugging Face's format")
        blocks = "layers" if self.renamed else "encoder.layer"
        return f"{self.prefix}{blocks}.{block[1]}.{names[block[2]]}.{LEAVES[leaf]}"
