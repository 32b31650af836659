"""The Vision Transformer in Flax, layer for layer as the original JAX release computes it.

The original is not on PyPI, so this takes its place: the same Flax modules (`nn.Conv` for patches,
`nn.MultiHeadDotProductAttention`, `nn.LayerNorm`, tanh GELU), the same order, the same parameters,
compiled by XLA.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from benchmarks.libraries import LEARNING_RATE, MOMENTUM, Case

SIZES = ("patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers", "num_classes")


class EncoderBlock(nn.Module):
    """Equations 2 and 3, (batch, tokens, width) to the same."""

    mlp_dim: int
    num_heads: int
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.LayerNorm(dtype=self.dtype)(x)
        x = x + nn.MultiHeadDotProductAttention(
            num_heads=self.num_heads, dtype=self.dtype, deterministic=True
        )(y, y)
        y = nn.LayerNorm(dtype=self.dtype)(x)
        y = nn.gelu(nn.Dense(self.mlp_dim, dtype=self.dtype)(y))
        return x + nn.Dense(x.shape[-1], dtype=self.dtype)(y)


class VisionTransformer(nn.Module):
    """Images, (batch, height, width, 3), to float32 logits, (batch, num_classes)."""

    patch_size: int
    hidden_size: int
    mlp_dim: int
    num_heads: int
    num_layers: int
    num_classes: int
    dtype: Any = jnp.float32
    remat: bool = False

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        patch = (self.patch_size, self.patch_size)
        x = nn.Conv(self.hidden_size, patch, strides=patch, padding="VALID", dtype=self.dtype)(
            images
        )
        batch, rows, columns, channels = x.shape
        x = x.reshape(batch, rows * columns, channels)
        token = self.param("cls", nn.initializers.zeros, (1, 1, channels))
        x = jnp.concatenate([jnp.tile(token.astype(x.dtype), (batch, 1, 1)), x], axis=1)
        positions = self.param(
            "pos_embedding", nn.initializers.normal(0.02), (1, x.shape[1], channels)
        )
        x = x + positions.astype(x.dtype)
        block = nn.remat(EncoderBlock) if self.remat else EncoderBlock
        for _ in range(self.num_layers):
            x = block(self.mlp_dim, self.num_heads, self.dtype)(x)
        x = nn.LayerNorm(dtype=self.dtype)(x)[:, 0]
        return nn.Dense(self.num_classes, kernel_init=nn.initializers.zeros)(x.astype(jnp.float32))


def prepare(case: Case) -> tuple[Callable[[], Any], int]:
    """The model."""
    dtype = jnp.dtype(case.precision)
    sizes, remat = {name: case.arguments[name] for name in SIZES}, case.arguments.get("remat")
    model = VisionTransformer(**sizes, dtype=dtype, remat=bool(remat))
    images, labels = jnp.asarray(case.images()), jnp.asarray(case.labels())
    weights = jax.jit(model.init)(jax.random.key(0), images[:1])
    parameters = sum(x.size for x in jax.tree.leaves(weights))
    if case.mode == "infer":
        weights = jax.tree.map(lambda x: x.astype(dtype), weights)
        forward = jax.jit(model.apply)
        return lambda: jax.block_until_ready(forward(weights, images)), parameters
    optimizer = optax.sgd(LEARNING_RATE, momentum=MOMENTUM)
    state = weights, optimizer.init(weights)
    update = update_of(model, optimizer, optax.softmax_cross_entropy_with_integer_labels)

    def step():
        nonlocal state
        state, loss = update(state, images, labels)
        return jax.block_until_ready((state, loss))

    return step, parameters


def update_of(
    model: nn.Module, optimizer: optax.GradientTransformation, loss: Callable[..., jax.Array]
) -> jax.stages.Wrapped:
    """Returns one compiled update, from (state, images, labels) to (state, loss).

    A state is (weights, what the optimizer keeps), and donated. `loss` is of optax, from logits and
    labels to (batch,).
    """

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state, images, labels):
        weights, slots = state

        def loss_of(weights):
            return loss(model.apply(weights, images), labels).mean()

        value, gradients = jax.value_and_grad(loss_of)(weights)
        updates, slots = optimizer.update(gradients, slots, weights)
        return (optax.apply_updates(weights, updates), slots), value

    return update
