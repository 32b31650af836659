"""Training and evaluation: recipes, data, the distributed loop, the paper's protocols."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_vit.training.data import load_dataset
    from keras_vit.training.evaluators.classification import evaluate
    from keras_vit.training.loop.trainer import train
    from keras_vit.training.prediction.predictor import predict
    from keras_vit.training.recipes.losses import build_loss
    from keras_vit.training.recipes.optimizers import build_optimizer

# Imported on first use, so that a command answers --help without TensorFlow.
_ROOMS = {
    "build_loss": "recipes.losses",
    "build_optimizer": "recipes.optimizers",
    "evaluate": "evaluators.classification",
    "load_dataset": "data",
    "predict": "prediction.predictor",
    "train": "loop.trainer",
}

__all__ = [
    "build_loss",
    "build_optimizer",
    "evaluate",
    "load_dataset",
    "predict",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return getattr(importlib.import_module(f"keras_vit.training.{_ROOMS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
