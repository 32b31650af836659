"""The safetensors of timm's `VisionTransformer`: DeiT, DeiT III, DINOv2 and SigLIP as well."""

from dataclasses import dataclass

from keras_vit.checkpoints.base_layouts import TorchLayout, in_blocks

POOL = "MAPHead_0/MultiHeadDotProductAttention_0"
TABLE = {
    "cls": "cls_token",
    "reg": "reg_token",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
    "embedding": "patch_embed.proj",
    "Transformer/encoder_norm": "norm",
    "pre_logits": "pre_logits.fc",
    "MAPHead_0/probe": "attn_pool.latent",
    f"{POOL}/query": "attn_pool.q",
    f"{POOL}/key": "attn_pool.kv",
    f"{POOL}/value": "attn_pool.kv",
    f"{POOL}/out": "attn_pool.proj",
    "MAPHead_0/LayerNorm_0": "attn_pool.norm",
    "MAPHead_0/MlpBlock_0/Dense_0": "attn_pool.mlp.fc1",
    "MAPHead_0/MlpBlock_0/Dense_1": "attn_pool.mlp.fc2",
    **in_blocks(
        "blocks",
        "norm1 attn.qkv attn.qkv attn.qkv attn.proj norm2 mlp.fc1 mlp.fc2 ls1.gamma ls2.gamma",
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
