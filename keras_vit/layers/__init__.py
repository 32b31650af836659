"""The layers of the Vision Transformer, its hybrids and its relatives."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.axial import AxialAttention, AxialEncoderBlock, AxialUnit
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.encoder_block import AttentionOfBlock, EncoderBlock
from keras_vit.layers.heads import MAPHead
from keras_vit.layers.mlp import MLP
from keras_vit.layers.normalization import GroupNormalization, LayerNormalization
from keras_vit.layers.patch_embedding import FlattenGrid, PatchEmbedding
from keras_vit.layers.position_embeddings import LearnedPosition1D
from keras_vit.layers.position_variants import (
    LearnedPosition2D,
    RelativePosition,
    SinCosPosition2D,
)
from keras_vit.layers.resnet_units import BiTUnit, HybridUnit, RootPooling, StandardizedConv2D
from keras_vit.layers.tokens import ClassToken, FirstToken, RegisterTokens

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
