"""What the paper looked into inside a trained model (section 4.5, appendices D.6 and D.7)."""

from keras_vit.analysis import figures
from keras_vit.analysis.attention_distance import attention_distance, mean_distance
from keras_vit.analysis.attention_maps import attention_tensors
from keras_vit.analysis.attention_rollout import attention_rollout, rollout
from keras_vit.analysis.costs import Costs, costs
from keras_vit.analysis.filters import embedding_filters, principal_components
from keras_vit.analysis.geometry import token_distances
from keras_vit.analysis.position_similarity import position_similarity
from keras_vit.analysis.reconstruction import Reconstruction, reconstruct

__all__ = [
    "Costs",
    "Reconstruction",
    "attention_distance",
    "attention_rollout",
    "attention_tensors",
    "costs",
    "embedding_filters",
    "figures",
    "mean_distance",
    "position_similarity",
    "principal_components",
    "reconstruct",
    "rollout",
    "token_distances",
]
