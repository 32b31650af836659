"""The Vision Transformer for Keras 3."""

from keras_vit import analysis, layers, variants
from keras_vit.analysis import costs
from keras_vit.analysis.attention_maps import attention_maps
from keras_vit.checkpoints import list_weights, load_checkpoint, save_checkpoint
from keras_vit.create_model import create_model, list_models
from keras_vit.feature_maps import feature_maps
from keras_vit.inference import InferenceFunction, inference_function, load_inference_function
from keras_vit.installation import warn_of_namesake
from keras_vit.models import AxialResNet, ResNetV2, VisionTransformer
from keras_vit.models.masked_patch_prediction import MaskedPatchPrediction
from keras_vit.predict import predict
from keras_vit.version import __version__

warn_of_namesake()

__all__ = [
    "AxialResNet",
    "InferenceFunction",
    "MaskedPatchPrediction",
    "ResNetV2",
    "VisionTransformer",
    "__version__",
    "analysis",
    "attention_maps",
    "costs",
    "create_model",
    "feature_maps",
    "inference_function",
    "layers",
    "list_models",
    "list_weights",
    "load_checkpoint",
    "load_inference_function",
    "predict",
    "save_checkpoint",
    "variants",
]
