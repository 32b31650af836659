"""Axial attention: accuracy over compute and over speed (Figure 12, appendix D.5)."""

from typing import Any

from keras_vit.training.configs import ablation_base

_AXIAL = {"attention": "axial", "classifier": "gap"}
_MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "small": {
        "resnet": {"name": "BiT-R50x1", "num_layers": (1, 1, 1)},
        "vit_8": {"patch_size": 8},
        "vit_4": {"patch_size": 4},
        "axial_8": {"patch_size": 8, **_AXIAL},
        "axial_4": {"patch_size": 4, **_AXIAL},
    },
    "paper": {
        "vit_32": {"name": "ViT-B/32"},
        "vit_16": {"name": "ViT-B/16"},
        "axial_32": {"name": "Axial-ViT-B/32"},
        "axial_16": {"name": "Axial-ViT-B/16"},
    },
}


def _cells(scale):
    return {
        cell: ablation_base.config_of_model(scale, model) for cell, model in _MODELS[scale].items()
    }


STUDY = ablation_base.Study("Axial attention (Figure 12)", _cells)
get_config = STUDY.get_config
