"""This package."""

import functools
from collections.abc import Callable
from typing import Any

import keras

import keras_vit
from benchmarks.libraries import Case, keras_step


def _build(case, **arguments):
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(**arguments | case.arguments, dtype=keras_step.policy(case))
    count = keras_vit.costs(model)
    return model, {
        "parameters": keras_step.parameters(model),
        "macs": count.macs,
        "executed_macs": count.executed_macs,
    }


def prepare(
    case: Case, donate: bool = True, **arguments: Any
) -> tuple[Callable[[], Any], dict[str, int]]:
    """The model, with further arguments."""
    model, facts = _build(case, **arguments)
    return keras_step.step_of(model, case, donate), facts


# The model that recomputes its blocks' activations, the one with fused attention where JAX has it,
# and, under JAX, the one whose updates leave the old weights in memory.
remat = functools.partial(prepare, remat=True)
flash_attention = functools.partial(prepare, flash_attention=True)
undonated = functools.partial(prepare, donate=False)


def inference_function(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """`keras_vit.inference_function` of the model."""
    model, facts = _build(case)
    for variable in model.variables:
        # As training leaves them: multiplying by ones and adding zeros is optimized away.
        variable.assign(variable + keras.random.normal(variable.shape, 0, 0.02, variable.dtype))
    infer = keras_vit.inference_function(model, case.precision, batch_size=case.batch_size)
    images = case.images()
    return lambda: infer(images), facts
