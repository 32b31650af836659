"""keras-hub's ViT, on Keras's backend."""

import pathlib
from collections.abc import Callable
from typing import Any

import keras
import keras_hub

from benchmarks.libraries import Case, keras_step


def _build(case):
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
    return keras_hub.models.ViTImageClassifier(backbone, a["num_classes"])


def prepare(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """The model."""
    model = _build(case)
    return keras_step.step_of(model, case), {"parameters": keras_step.parameters(model)}


def to_tflite(case: Case, folder: pathlib.Path, **options: Any) -> None:
    """keras-hub's `export`, as it is called without further arguments."""
    file = str(folder / "float32.tflite")
    _build(case).export(file, format="litert", verbose=False, **options)


def to_one_image_tflite(case: Case, folder: pathlib.Path) -> None:
    """keras-hub's `export` for one image."""
    signature = [keras.InputSpec(shape=(1, *case.image_shape), dtype="float32")]
    to_tflite(case, folder, input_signature=signature)
