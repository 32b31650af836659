"""Training and evaluation: recipes, data, the distributed loop, the paper's protocols."""

import importlib
import pathlib

# So that `python -m training.sweep` is `python -m training sweep`.
__path__ = [*__path__, str(pathlib.Path(__file__).parent / "commands")]

_HOMES = {
    "build_loss": "training.recipes.losses",
    "build_optimizer": "training.recipes.optimizers",
    "load_dataset": "training.data",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    # On first use, so that a command can answer --help without TensorFlow.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'training' has no attribute {name!r}")
