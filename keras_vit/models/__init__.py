"""The models."""

from keras_vit.models.resnets import AxialResNet, ResNetV2
from keras_vit.models.vision_transformer import VisionTransformer

__all__ = ["AxialResNet", "ResNetV2", "VisionTransformer"]
