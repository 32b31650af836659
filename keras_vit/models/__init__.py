"""The models."""

from keras_vit.models.attention_maps import attention_maps, attention_tensors
from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.resnet_v2 import ResNetV2
from keras_vit.models.vision_transformer import VisionTransformer

__all__ = [
    "AxialResNet",
    "ResNetV2",
    "VisionTransformer",
    "attention_maps",
    "attention_tensors",
]
