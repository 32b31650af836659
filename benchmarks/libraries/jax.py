"""The original's model in JAX and Flax, compiled by XLA."""

import functools

import jax
import jax.numpy as jnp
import optax

from benchmarks.libraries import batches
from benchmarks.libraries.flax_vit import VisionTransformer
from benchmarks.libraries.recipe import LEARNING_RATE, MOMENTUM

_SIZES = ("patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers", "num_classes")


def prepare(case):
    dtype = jnp.dtype(case.precision)
    model = VisionTransformer(**{name: case.arguments[name] for name in _SIZES}, dtype=dtype)
    images = jnp.asarray(batches.images(case))
    weights = jax.jit(model.init)(jax.random.key(0), images[:1])
    facts = {"parameters": sum(x.size for x in jax.tree.leaves(weights))}
    if case.mode == "infer":
        weights = jax.tree.map(lambda x: x.astype(dtype), weights)
        forward = jax.jit(model.apply)
        return lambda: jax.block_until_ready(forward(weights, images)), facts
    return _Update(model, weights, images, jnp.asarray(batches.labels(case))), facts


class _Update:
    def __init__(self, model, weights, images, labels):
        self.batch = images, labels
        self.optimizer = optax.sgd(LEARNING_RATE, momentum=MOMENTUM)
        self.state = weights, self.optimizer.init(weights)
        self.update = jax.jit(functools.partial(self._update, model), donate_argnums=0)

    def _update(self, model, state, images, labels):
        weights, slots = state

        def loss_of(weights):
            logits = model.apply(weights, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        updates, slots = self.optimizer.update(gradients, slots)
        return (optax.apply_updates(weights, updates), slots), loss

    def __call__(self):
        self.state, loss = self.update(self.state, *self.batch)
        return jax.block_until_ready((self.state, loss))
