"""One step of a Keras model on JAX; TensorFlow is not needed."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras

from benchmarks.harness.case import LEARNING_RATE, MOMENTUM, Case
from benchmarks.libraries import PRODUCT_SIDE


def step_of(model: keras.Model, case: Case, donate: bool = True) -> Callable[[], Any]:
    """Returns a function without arguments that runs one step and waits for it.

    Args:
        model: images to logits; an update takes its variables' values with it.
        case: what to run.
        donate: whether an update writes the new weights where the old ones are.
    """
    images = jnp.asarray(case.images())
    trained = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]

    def logits_of(trained, others, images):
        return model.stateless_call(trained, others, images, training=case.mode == "train")[0]

    if case.mode == "infer":
        forward = jax.jit(logits_of)
        return lambda: jax.block_until_ready(forward(trained, others, images))

    labels = jnp.asarray(case.labels())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
    optimizer.build(model.trainable_variables)
    state = trained, [variable.value for variable in optimizer.variables]

    @functools.partial(jax.jit, donate_argnums=0 if donate else ())
    def update(state, others, images, labels):
        trained, slots = state

        def loss_of(trained):
            return loss(labels, logits_of(trained, others, images))

        value, gradients = jax.value_and_grad(loss_of)(trained)
        return optimizer.stateless_apply(slots, gradients, trained), value

    def step():
        nonlocal state
        state, value = update(state, others, images, labels)
        return jax.block_until_ready((state, value))

    return step


def matrix_product(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """A large matrix product in JAX."""
    keys = jax.random.split(jax.random.key(0))
    left, right = (jax.random.normal(key, (PRODUCT_SIDE,) * 2, case.precision) for key in keys)
    product = jax.jit(jnp.matmul)
    return lambda: jax.block_until_ready(product(left, right)), {"flops": 2 * PRODUCT_SIDE**3}
