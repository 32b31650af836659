"""Training and evaluation: recipes, data, the distributed loop, the paper's protocols."""

from typing import TYPE_CHECKING

from keras_vit.lazy_imports import import_when_used

if TYPE_CHECKING:
    from keras_vit.training.data import load_dataset
    from keras_vit.training.evaluators.classification import evaluate
    from keras_vit.training.loop.trainer import train
    from keras_vit.training.prediction.predict_folders_and_shards import predict
    from keras_vit.losses import build_loss
    from keras_vit.training.recipes.optimizer import build_optimizer

__getattr__ = import_when_used(
    "keras_vit.training",
    {
        "build_loss": "keras_vit.losses",
        "build_optimizer": ".recipes.optimizer",
        "evaluate": ".evaluators.classification",
        "load_dataset": ".data",
        "predict": ".prediction.predict_folders_and_shards",
        "train": ".loop.trainer",
    },
)

__all__ = ["build_loss", "build_optimizer", "evaluate", "load_dataset", "predict", "train"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
