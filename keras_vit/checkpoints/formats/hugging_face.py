"""Hugging Face's safetensors of ViT, DeiT, DINOv2 (with registers too), SigLIP and SigLIP 2."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_vit.checkpoints.base_layouts import LEAVES, FileArray, TorchLayout, in_blocks
from keras_vit.checkpoints.npz_and_safetensors import CheckpointError
from keras_vit.checkpoints.official_names import Weight

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
