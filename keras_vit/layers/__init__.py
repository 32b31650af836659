"""The layers of the Vision Transformer, its hybrids and its relatives."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.axial_attention import AxialAttention
from keras_vit.layers.axial_encoder_block import AxialEncoderBlock
from keras_vit.layers.axial_resnet_unit import AxialUnit
from keras_vit.layers.block_attention_weights import AttentionOfBlock
from keras_vit.layers.class_token import ClassToken
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.layers.first_token import FirstToken
from keras_vit.layers.group_normalization import GroupNormalization
from keras_vit.layers.layer_normalization import LayerNormalization
from keras_vit.layers.map_head import MAPHead
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_embedding import FlattenGrid, PatchEmbedding
from keras_vit.layers.position_embedding import (
    LearnedPosition1D,
    LearnedPosition2D,
    SinCosPosition2D,
)
from keras_vit.layers.register_tokens import RegisterTokens
from keras_vit.layers.relative_position import RelativePosition
from keras_vit.layers.resnet_units import BiTUnit, HybridUnit
from keras_vit.layers.root_pooling import RootPooling
from keras_vit.layers.standardized_conv import StandardizedConv2D

__all__ = [
    "MLP",
    "AttentionOfBlock",
    "AxialAttention",
    "AxialEncoderBlock",
    "AxialUnit",
    "BiTUnit",
    "ClassToken",
    "Dropout",
    "EncoderBlock",
    "FirstToken",
    "FlattenGrid",
    "GroupNormalization",
    "HybridUnit",
    "LayerNormalization",
    "LearnedPosition1D",
    "LearnedPosition2D",
    "MAPHead",
    "MultiHeadSelfAttention",
    "PatchEmbedding",
    "RegisterTokens",
    "RelativePosition",
    "RootPooling",
    "SinCosPosition2D",
    "StandardizedConv2D",
    "StochasticDepth",
]
