"""Hugging Face's safetensors of `Dinov2Model`, with registers and with a classifier as well."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from keras_vit.checkpoints.array_files import Source
from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.formats.folded_source import fold_layer_scale
from keras_vit.checkpoints.formats.hugging_face import BLOCK, RENAMED_BLOCK
from keras_vit.checkpoints.formats.torch_layout import (
    modules_after,
    refuse_gated_mlp,
    separate_arrays,
)
from keras_vit.checkpoints.variable_names import Weight

MODULES = {
    "cls": "embeddings.cls_token",
    "reg": "embeddings.register_tokens",
    "Transformer/posembed_input/pos_embedding": "embeddings.position_embeddings",
    "embedding": "embeddings.patch_embeddings.projection",
    "Transformer/encoder_norm": "layernorm",
}

# Attention has the names of Hugging Face's ViT, transformers 5's in memory too.
OWN = {
    "LayerNorm_0": "norm1",
    "LayerNorm_2": "norm2",
    "MlpBlock_3/Dense_0": "mlp.fc1",
    "MlpBlock_3/Dense_1": "mlp.fc2",
}

LAYER_SCALE = re.compile(r"(.+)\.layer_scale([12])\.lambda1")


@dataclass(frozen=True)
class HuggingFaceDINOv2Layout(FileLayout):
    """The arrays of a DINOv2 file of Hugging Face, its LayerScale folded.

    Their classifier reads the class token beside the mean of the patches: a model with
    `classifier="token_gap"`.

    Attributes:
        prefix: "dinov2.", "dinov2_with_registers.", or "" for a model without its classifier.
        renamed: bool, whether attention has the names of transformers 5.
    """

    title = "Hugging Face's DINOv2 safetensors"
    aliases: ClassVar = {"head": ("classifier",)}
    patch_embedding = "embeddings.patch_embeddings.projection"
    is_torch = True
    prefix: str = "dinov2."
    renamed: bool = False

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "HuggingFaceDINOv2Layout | None":
        """Returns the layout of a file, or None if it is not one of DINOv2's."""
        for prefix in ("dinov2.", "dinov2_with_registers.", ""):
            if f"{prefix}encoder.layer.0.layer_scale1.lambda1" in shapes:
                renamed = f"{prefix}encoder.layer.0.attention.q_proj.weight" in shapes
                return cls(prefix, renamed)
        return None

    def owns(self, name: str) -> bool:
        return name != f"{self.prefix}embeddings.mask_token"

    def folded(self, source: Source) -> Source:
        refuse_gated_mlp(source, "mlp.fc1.weight", "mlp.fc2.weight")
        scaled = {
            "1": self._block["MultiHeadDotProductAttention_1/out"],
            "2": self._block["MlpBlock_3/Dense_1"],
        }
        gammas = filter(None, map(LAYER_SCALE.fullmatch, source.shapes))
        return fold_layer_scale(source, {g[0]: f"{g[1]}.{scaled[g[2]]}" for g in gammas})

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        modules = modules_after(self.prefix, MODULES)
        blocks = f"{self.prefix}encoder.layer"
        return separate_arrays(weights, modules, blocks, self._block, self.title)

    @property
    def _block(self):
        return {**(RENAMED_BLOCK if self.renamed else BLOCK), **OWN}
