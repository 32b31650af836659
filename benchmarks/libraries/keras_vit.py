"""This package."""

import functools
from collections.abc import Callable
from typing import Any

import keras

import keras_vit
from benchmarks.libraries import Case, keras_step


def prepare(case: Case, **arguments: Any) -> tuple[Callable[[], Any], int]:
    """The model, with further arguments."""
    keras.utils.set_random_seed(0)
    arguments = arguments | case.arguments | {"dtype": keras_step.policy(case)}
    return keras_step.step_of(keras_vit.VisionTransformer(**arguments), case)


# The model that recomputes its blocks' activations, and the one with fused attention where JAX has
# it.
remat = functools.partial(prepare, remat=True)
flash_attention = functools.partial(prepare, flash_attention=True)
