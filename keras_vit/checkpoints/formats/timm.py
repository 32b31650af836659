"""The safetensors of timm's `VisionTransformer`: DeiT, DeiT III, DINOv2 and SigLIP as well."""

from dataclasses import dataclass

from keras_vit.checkpoints.base_layouts import TorchLayout, in_blocks

TABLE = {
    "cls": "cls_token",
    "reg": "reg_token",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
    "embedding": "patch_embed.proj",
    "Transformer/encoder_norm": "norm",
    "MAPHead_0/probe": "attn_pool.latent",
    "MAPHead_0/MultiHeadDotProductAttention_0/query": "attn_pool.q",
    "MAPHead_0/MultiHeadDotProductAttention_0/key": "attn_pool.kv",
    "MAPHead_0/MultiHeadDotProductAttention_0/value": "attn_pool.kv",
    "MAPHead_0/MultiHeadDotProductAttention_0/out": "attn_pool.proj",
    "MAPHead_0/LayerNorm_0": "attn_pool.norm",
    "MAPHead_0/MlpBlock_0/Dense_0": "attn_pool.mlp.fc1",
    "MAPHead_0/MlpBlock_0/Dense_1": "attn_pool.mlp.fc2",
    "pre_logits": "pre_logits.fc",
    **in_blocks(
        "blocks",
        {
            "LayerNorm_0": "norm1",
            "LayerNorm_2": "norm2",
            "MultiHeadDotProductAttention_1/query": "attn.qkv",
            "MultiHeadDotProductAttention_1/key": "attn.qkv",
            "MultiHeadDotProductAttention_1/value": "attn.qkv",
            "MultiHeadDotProductAttention_1/out": "attn.proj",
            "MlpBlock_3/Dense_0": "mlp.fc1",
            "MlpBlock_3/Dense_1": "mlp.fc2",
            "LayerScale_0": "ls1.gamma",
            "LayerScale_1": "ls2.gamma",
        },
    ),
}


@dataclass(frozen=True)
class TimmLayout(TorchLayout):
    """The arrays of a timm file: queries, keys and values of a block in one."""

    title = "timm's safetensors"
    marks = ("patch_embed.proj.weight",)
    # DINOv2's own files have another name for register tokens.
    tables = (TABLE, {**TABLE, "reg": "register_tokens"})
    classifier = "head"
    unused = ("mask_token",)
