"""The layers of the Vision Transformer, its hybrids and its relatives."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.attention_variants import (
    FusedSelfAttention,
    MAPHead,
    RelativeSelfAttention,
)
from keras_vit.layers.axial import AxialAttention, AxialEncoderBlock, AxialUnit
from keras_vit.layers.class_token import ClassToken
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.layers.learned_tokens import LearnedTokens
from keras_vit.layers.mlp import MLP, SwiGLU
from keras_vit.layers.normalization import LayerNormalization
from keras_vit.layers.patch_embedding import FlattenGrid, PatchEmbedding
from keras_vit.layers.position_embeddings import PositionEmbedding
from keras_vit.layers.position_embeddings_2d import LearnedPosition2D, SinCosPosition2D
from keras_vit.layers.resnet_units import (
    BiTUnit,
    GroupNormalization,
    HybridUnit,
    RootPooling,
    StandardizedConv2D,
)

__all__ = [
    "MLP",
    "AxialAttention",
    "AxialEncoderBlock",
    "AxialUnit",
    "BiTUnit",
    "ClassToken",
    "Dropout",
    "EncoderBlock",
    "FlattenGrid",
    "FusedSelfAttention",
    "GroupNormalization",
    "HybridUnit",
    "LayerNormalization",
    "LearnedPosition2D",
    "LearnedTokens",
    "MAPHead",
    "MultiHeadSelfAttention",
    "PatchEmbedding",
    "PositionEmbedding",
    "RelativeSelfAttention",
    "RootPooling",
    "SinCosPosition2D",
    "StandardizedConv2D",
    "StochasticDepth",
    "SwiGLU",
]
