"""Random numbers of one part of a batch: those that the whole batch would have there.

Every example has a key of its own, of its place in the batch. So a device makes those of its
examples, and a micro-batch its own: numbers drawn for all micro-batches would not fit.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import keras

from keras_vit.type_hints import Tensor

_PART: contextvars.ContextVar[tuple[Tensor, int]] = contextvars.ContextVar("part", default=(0, 1))


@contextlib.contextmanager
def part_of_batch(part: Tensor, count: int) -> Iterator[None]:
    """Enters a context in which these functions draw for one of `count` equal parts of a batch.

    Its examples are `part`, an int scalar, part + count, part + 2 count, ...
    """
    token = _PART.set((part, count))
    try:
        yield
    finally:
        _PART.reset(token)


def dropout(
    inputs: Tensor, rate: float, noise_shape: Sequence[int] | None, seed: keras.random.SeedGenerator
) -> Tensor:
    """Does what `keras.random.dropout` does, on a part of a batch, (examples, ...)."""
    shape = inputs.shape if noise_shape is None else noise_shape
    kept = _drawn(lambda key, shape: jax.random.bernoulli(key, 1 - rate, shape), shape, seed)
    return jnp.where(kept, inputs / (1 - rate), jnp.zeros([], inputs.dtype))


def uniform(shape: Sequence[int], seed: keras.random.SeedGenerator) -> Tensor:
    """Returns uniform numbers from 0 to 1 for a part of a batch, (examples, ...)."""
    return _drawn(lambda key, shape: jax.random.uniform(key, shape, "float32"), shape, seed)


def randint(
    shape: Sequence[int], minval: int, maxval: int, seed: keras.random.SeedGenerator
) -> Tensor:
    """Returns int32 numbers from `minval` to below `maxval` for a part of a batch."""
    return _drawn(lambda key, shape: jax.random.randint(key, shape, minval, maxval), shape, seed)


def _drawn(draw, shape, seed):
    """Returns what `draw(key, shape)` gives for each of the part's examples, (examples, ...)."""
    part, count = _PART.get()
    examples, *others = shape
    key = jnp.asarray(seed.next(), jnp.uint32)
    places = part + count * jnp.arange(examples, dtype=jnp.uint32)
    return jax.vmap(lambda place: draw(jax.random.fold_in(key, place), tuple(others)))(places)
