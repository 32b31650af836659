"""One step of a Keras model on the backend at hand, the same for this package and for keras-hub."""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras

from benchmarks.libraries import LEARNING_RATE, MOMENTUM, PRODUCT_FACTS, PRODUCT_SIDE, Case


def policy(case: Case) -> str:
    """Returns the name of the Keras dtype policy that the case asks for."""
    if case.precision == "float32":
        return "float32"
    return "bfloat16" if case.mode == "infer" else "mixed_bfloat16"


def parameters(model: keras.Model) -> int:
    """Returns the number of trained values."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def matrix_product(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """A large matrix product."""
    shape = PRODUCT_SIDE, PRODUCT_SIDE
    left, right = (keras.random.normal(shape, dtype=case.precision) for _ in range(2))
    step = functools.partial(keras.ops.matmul, left, right)
    return lambda: keras.ops.convert_to_numpy(step()[:1, :1]), PRODUCT_FACTS


def step_of(model: keras.Model, case: Case, donate: bool = True) -> Callable[[], Any]:
    """Returns a function without arguments that runs one step and waits for it.

    Args:
        model: images to logits.
        case: what to run.
        donate: whether an update under JAX writes the new weights where the old ones are.
    """
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
    if case.mode == "train":
        optimizer.build(model.trainable_variables)
    if keras.config.backend() == "jax":
        return _jax_step(model, loss, optimizer, case, donate)
    return _tensorflow_step(model, loss, optimizer, case)


def _tensorflow_step(model, loss_of, optimizer, case):
    import tensorflow as tf

    images, labels = tf.constant(case.images()), tf.constant(case.labels())
    function = functools.partial(tf.function, jit_compile=case.compiled, autograph=False)

    @function
    def infer(images, labels):
        return model(images, training=False)

    @function
    def update(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    step = infer if case.mode == "infer" else update
    return lambda: step(images, labels).numpy()


def _jax_step(model, loss, optimizer, case, donate):
    import jax
    import jax.numpy as jnp

    images, labels = jnp.asarray(case.images()), jnp.asarray(case.labels())
    trained = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]

    def logits_of(trained, others, images):
        return model.stateless_call(trained, others, images, training=case.mode == "train")[0]

    if case.mode == "infer":
        infer = jax.jit(logits_of)
        return lambda: jax.block_until_ready(infer(trained, others, images))
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
