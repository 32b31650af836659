"""One step of a Keras model on the backend at hand, the same for this package and for keras-hub."""

import importlib
import math
from collections.abc import Callable
from typing import Any

import keras

from benchmarks.harness.case import Case


def policy(case: Case) -> str:
    """Returns the name of the Keras dtype policy that the case asks for."""
    if case.precision == "float32":
        return "float32"
    return "bfloat16" if case.mode == "infer" else "mixed_bfloat16"


def parameters(model: keras.Model) -> int:
    """Returns the number of trained values."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def _on_backend():
    return importlib.import_module(f"benchmarks.libraries.{keras.config.backend()}_step")


def step_of(model: keras.Model, case: Case, **options: Any) -> Callable[[], Any]:
    """Returns a function without arguments that runs one step and waits for it.

    Args:
        model: images to logits.
        case: what to run.
        **options: of the backend's own `step_of`.
    """
    return _on_backend().step_of(model, case, **options)


def matrix_product(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """A large matrix product."""
    return _on_backend().matrix_product(case)
