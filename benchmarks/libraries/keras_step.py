"""One step of a Keras model, the same for this package and for keras-hub."""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras

from benchmarks.libraries import LEARNING_RATE, MOMENTUM, Case


def policy(case: Case) -> str:
    """Returns the name of the Keras dtype policy that the case asks for."""
    if case.precision == "float32":
        return "float32"
    return "bfloat16" if case.mode == "infer" else "mixed_bfloat16"


def step_of(model: keras.Model, case: Case) -> tuple[Callable[[], Any], int]:
    """Returns what `prepare` returns: a step on one batch, and the parameters.

    Args:
        model: images to logits.
        case: what to run.
    """
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
    images, labels = map(keras.ops.convert_to_tensor, (case.images(), case.labels()))
    if keras.config.backend() == "jax":
        return _jax_step(model, loss, optimizer, images, labels, case.mode), parameters
    model.compile(optimizer, loss, jit_compile=case.compiled)
    if case.mode == "infer":
        return lambda: model.predict_on_batch(images), parameters
    return lambda: model.train_on_batch(images, labels), parameters


def _jax_step(model, loss, optimizer, images, labels, mode):
    """Returns a step of one program, without what Keras does around it in Python."""
    import jax

    trained = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]

    def logits_of(trained, images):
        return model.stateless_call(trained, others, images, training=mode == "train")[0]

    if mode == "infer":
        infer = jax.jit(logits_of)
        return lambda: jax.block_until_ready(infer(trained, images))
    optimizer.build(model.trainable_variables)
    state = trained, [variable.value for variable in optimizer.variables]

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state, images, labels):
        trained, slots = state
        value, gradients = jax.value_and_grad(
            lambda weights: loss(labels, logits_of(weights, images))
        )(trained)
        return optimizer.stateless_apply(slots, gradients, trained), value

    def step():
        nonlocal state
        state, value = update(state, images, labels)
        return jax.block_until_ready((state, value))

    return step
