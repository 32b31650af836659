"""The models."""

from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.resnet_v2 import ResNetV2
from keras_vit.models.vision_transformer import VisionTransformer

__all__ = [
    "AxialResNet",
    "ResNetV2",
    "VisionTransformer",
]
