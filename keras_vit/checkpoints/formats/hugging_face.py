"""Hugging Face's safetensors of `ViTModel` and `ViTForImageClassification`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from keras_vit.checkpoints.array_files import Source
from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.formats.torch_layout import (
    modules_after,
    refuse_distilled,
    separate_arrays,
)
from keras_vit.checkpoints.variable_names import Weight

MODULES = {
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
    patch_embedding = "embeddings.patch_embeddings.projection"
    is_torch = True
    prefix: str = "vit."
    renamed: bool = False

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "HuggingFaceLayout | None":
        """Returns the layout of a file, or None if it is not one of Hugging Face's."""
        for prefix in ("vit.", "deit.", ""):
            if f"{prefix}{cls.patch_embedding}.weight" in shapes:
                return cls(prefix, any(n.startswith(f"{prefix}layers.") for n in shapes))
        return None

    def folded(self, source: Source) -> Source:
        refuse_distilled(source)
        return source

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        modules = modules_after(self.prefix, MODULES)
        blocks = self.prefix + ("layers" if self.renamed else "encoder.layer")
        block_modules = RENAMED_BLOCK if self.renamed else BLOCK
        return separate_arrays(weights, modules, blocks, block_modules, self.title)
