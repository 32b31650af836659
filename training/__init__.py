"""Training and evaluation: recipes, data, the distributed loop, the paper's protocols."""

from typing import TYPE_CHECKING

from keras_vit.lazy_imports import door, import_when_used

if TYPE_CHECKING:
    from keras_vit.losses import build_loss

    from .data.tf_data_batches import load_dataset
    from .distillation import distillation_loss
    from .evaluators.classification import evaluate
    from .loop.trainer import train
    from .prediction.predictor import predictions
    from .recipes.optimizer import build_optimizer

door(__name__, "keras_vit.training")

__getattr__ = import_when_used(
    "keras_vit.training",
    {
        "build_loss": "keras_vit.losses",
        "build_optimizer": ".recipes.optimizer",
        "distillation_loss": ".distillation",
        "evaluate": ".evaluators.classification",
        "load_dataset": ".data.tf_data_batches",
        "predictions": ".prediction.predictor",
        "train": ".loop.trainer",
    },
)

__all__ = [
    "build_loss",
    "build_optimizer",
    "distillation_loss",
    "evaluate",
    "load_dataset",
    "predictions",
    "train",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
