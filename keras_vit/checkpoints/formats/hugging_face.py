"""Hugging Face's safetensors of `ViTModel` and `ViTForImageClassification`, and of DeiT."""

from dataclasses import dataclass

from keras_vit.checkpoints.base_layouts import TorchLayout, in_blocks

MODULES = {
    "cls": "embeddings.cls_token",
    "Transformer/posembed_input/pos_embedding": "embeddings.position_embeddings",
    "embedding": "embeddings.patch_embeddings.projection",
    "Transformer/encoder_norm": "layernorm",
}

ATTENTION = {
    "MultiHeadDotProductAttention_1/query": "attention.attention.query",
    "MultiHeadDotProductAttention_1/key": "attention.attention.key",
    "MultiHeadDotProductAttention_1/value": "attention.attention.value",
    "MultiHeadDotProductAttention_1/out": "attention.output.dense",
}

# As transformers 5 calls the same modules in memory.
RENAMED_ATTENTION = {
    "MultiHeadDotProductAttention_1/query": "attention.q_proj",
    "MultiHeadDotProductAttention_1/key": "attention.k_proj",
    "MultiHeadDotProductAttention_1/value": "attention.v_proj",
    "MultiHeadDotProductAttention_1/out": "attention.o_proj",
}

NORMS = {"LayerNorm_0": "layernorm_before", "LayerNorm_2": "layernorm_after"}
MLP = {"MlpBlock_3/Dense_0": "intermediate.dense", "MlpBlock_3/Dense_1": "output.dense"}
RENAMED_MLP = {"MlpBlock_3/Dense_0": "mlp.fc1", "MlpBlock_3/Dense_1": "mlp.fc2"}

OUTSIDE = {**MODULES, "pre_logits": "pooler.dense"}


@dataclass(frozen=True)
class HuggingFaceLayout(TorchLayout):
    """The arrays of a Hugging Face file."""

    title = "Hugging Face's safetensors"
    prefixes = ("vit.", "deit.", "")
    marks = ("embeddings.patch_embeddings.projection.weight",)
    tables = (
        {**OUTSIDE, **in_blocks("encoder.layer", {**NORMS, **ATTENTION, **MLP})},
        {**OUTSIDE, **in_blocks("layers", {**NORMS, **RENAMED_ATTENTION, **RENAMED_MLP})},
    )
