"""Hugging Face's safetensors of SigLIP and SigLIP 2, the image tower."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_vit.checkpoints.base_layouts import LEAVES, FileArray, TorchLayout, in_blocks
from keras_vit.checkpoints.npz_and_safetensors import CheckpointError
from keras_vit.checkpoints.official_names import Weight

TABLE = {
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
        {
            "LayerNorm_0": "layer_norm1",
            "LayerNorm_2": "layer_norm2",
            "MultiHeadDotProductAttention_1/query": "self_attn.q_proj",
            "MultiHeadDotProductAttention_1/key": "self_attn.k_proj",
            "MultiHeadDotProductAttention_1/value": "self_attn.v_proj",
            "MultiHeadDotProductAttention_1/out": "self_attn.out_proj",
            "MlpBlock_3/Dense_0": "mlp.fc1",
            "MlpBlock_3/Dense_1": "mlp.fc2",
        },
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
    tables = (TABLE,)

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
