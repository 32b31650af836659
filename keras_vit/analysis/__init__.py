"""The paper's analyses of a trained model (section 4.5, appendices D.6 and D.7), and its cost."""

from keras_vit.analysis import figures
from keras_vit.analysis.attention import (
    attention_distance,
    attention_rollout,
    attention_tensors,
    class_attention,
    mean_distance,
    token_distances,
)
from keras_vit.analysis.class_maps import class_maps
from keras_vit.analysis.cost import Costs, costs
from keras_vit.analysis.embeddings import (
    embedding_filters,
    position_similarity,
    principal_components,
)
from keras_vit.analysis.reconstruction import Reconstruction, reconstruct

__all__ = [
    "Costs",
    "Reconstruction",
    "attention_distance",
    "attention_rollout",
    "attention_tensors",
    "class_attention",
    "class_maps",
    "costs",
    "embedding_filters",
    "figures",
    "mean_distance",
    "position_similarity",
    "principal_components",
    "reconstruct",
    "token_distances",
]
