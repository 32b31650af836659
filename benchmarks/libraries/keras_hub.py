"""keras-hub's ViT, on Keras's backend."""

from collections.abc import Callable
from typing import Any

import keras
import keras_hub

from benchmarks.libraries import Case, keras_step


def prepare(case: Case) -> tuple[Callable[[], Any], int]:
    """The model."""
    keras.utils.set_random_seed(0)
    a = case.arguments
    backbone = keras_hub.models.ViTBackbone(
        image_shape=case.image_shape,
        patch_size=a["patch_size"],
        num_layers=a["num_layers"],
        num_heads=a["num_heads"],
        hidden_dim=a["hidden_size"],
        mlp_dim=a["mlp_dim"],
        dtype=keras_step.policy(case),
    )
    model = keras_hub.models.ViTImageClassifier(backbone, a["num_classes"])
    return keras_step.step_of(model, case)
