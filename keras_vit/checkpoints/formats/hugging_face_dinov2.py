"""Hugging Face's safetensors of `Dinov2Model`, with registers and with a classifier as well."""

from dataclasses import dataclass

from keras_vit.checkpoints.base_layouts import TorchLayout, in_blocks
from keras_vit.checkpoints.formats.hugging_face import (
    ATTENTION,
    MODULES,
    RENAMED_ATTENTION,
    RENAMED_MLP,
)

OUTSIDE = {**MODULES, "reg": "embeddings.register_tokens"}

BLOCK = {
    "LayerNorm_0": "norm1",
    "LayerNorm_2": "norm2",
    "LayerScale_0": "layer_scale1.lambda1",
    "LayerScale_1": "layer_scale2.lambda1",
    **RENAMED_MLP,
}


@dataclass(frozen=True)
class HuggingFaceDINOv2Layout(TorchLayout):
    """The arrays of a DINOv2 file of Hugging Face.

    Their classifier reads the class token beside the mean of the patches: a model with
    `classifier="token_gap"`.
    """

    title = "Hugging Face's DINOv2 safetensors"
    prefixes = ("dinov2.", "dinov2_with_registers.", "")
    marks = ("encoder.layer.0.layer_scale1.lambda1",)
    tables = tuple(
        {**OUTSIDE, **in_blocks("encoder.layer", {**BLOCK, **attention})}
        for attention in (ATTENTION, RENAMED_ATTENTION)
    )
    unused = ("embeddings.mask_token",)
