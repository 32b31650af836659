"""The names that `import keras_vit` offers."""

from keras_vit import analysis, layers, losses, optimizers, variants
from keras_vit.analysis import costs
from keras_vit.analysis.attention import attention_maps
from keras_vit.checkpoints import list_weights, load_checkpoint, save_checkpoint
from keras_vit.few_shot_head import few_shot_head

# Imported as saved models name them.
from keras_vit.hub_layer import HubLayer as HubLayer
from keras_vit.learning_rate_schedule import WarmupDecay as WarmupDecay
from keras_vit.model_factory import create_model, list_models
from keras_vit.models import AxialResNet, ResNetV2, VisionTransformer
from keras_vit.models.feature_maps import feature_maps
from keras_vit.models.masked_patch_prediction import MaskedPatchPrediction
from keras_vit.models.segmenter import Segmenter
from keras_vit.predict_photos import predict
from keras_vit.version import __version__

__all__: list[str] = [
    "AxialResNet",
    "MaskedPatchPrediction",
    "ResNetV2",
    "Segmenter",
    "VisionTransformer",
    "__version__",
    "analysis",
    "attention_maps",
    "costs",
    "create_model",
    "feature_maps",
    "few_shot_head",
    "layers",
    "list_models",
    "list_weights",
    "load_checkpoint",
    "losses",
    "optimizers",
    "predict",
    "save_checkpoint",
    "variants",
]
