"""Trains on random fractions of a training set (Figures 3 and 4, section 4.3).

Every model is trained on a fraction of the training set with the same hyper-parameters and number
of steps, and the weights of the best accuracy on held-out images are kept, which is the paper's
early stopping. Data sets are stored in random order, so that a leading part is a random subset;
smaller subsets lie in larger ones.
"""

from typing import Any

from keras_vit.training.configs import ablation_base

# Of JFT's 300 million images the paper takes 9, 30, 90 and all.
PERCENTS = (3, 10, 30, 100)

# "b" has half of every hidden dimension.
_MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "small": {
        "vit": {},
        "b": {"hidden_size": 32, "mlp_dim": 64},
        "resnet": {"name": "BiT-R50x1", "num_layers": (1, 1, 1)},
    },
    "paper": {
        "ViT-b": {
            "name": "ViT-B/32",
            "hidden_size": 384,
            "mlp_dim": 1536,
            "representation_size": 384,
        },
        "ViT-B": {"name": "ViT-B/32"},
        "ViT-L": {"name": "ViT-L/16", "representation_size": 1024},
        "R50x1": {"name": "BiT-R50x1"},
        "R152x2": {"name": "BiT-R152x2"},
    },
}
# Held out for early stopping: the last 2 %, and of ImageNet-21k its development split.
_TRAINED_ON = {"small": 0.98, "paper": 1.0}
_HELD_OUT = {"small": "train[98%:]", "paper": "dev"}


def _cells(scale):
    """Returns {cell: config}; a cell is "MODEL_PERCENT"."""
    result = {}
    for model, arguments in _MODELS[scale].items():
        for percent in PERCENTS:
            config = ablation_base.config_of_model(scale, arguments)
            config.train_split = f"train[:{percent * _TRAINED_ON[scale]:g}%]"
            config.eval_split = _HELD_OUT[scale]
            result[f"{model}_{percent}"] = config
    return result


STUDY = ablation_base.Study(
    "Data size (Figures 3 and 4)", _cells, evaluations=10, early_stopping=True
)
get_config = STUDY.get_config
