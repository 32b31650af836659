"""Random numbers of one part of a batch: those that the whole batch would have there.

JAX divides arrays of random numbers over devices as it divides the batch. A micro-batch takes its
rows of what is drawn for all of them; compilers make no others.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import keras

from keras_vit.typing import Tensor

_PART: contextvars.ContextVar[tuple[Tensor, int]] = contextvars.ContextVar("part", default=(0, 1))


@contextlib.contextmanager
def part_of_batch(part: Tensor, count: int) -> Iterator[None]:
    """Enters a context in which these functions draw for one of several parts of a batch.

    Args:
        part: int scalar, below `count`: its examples are part, part + count, part + 2 count, ...
        count: number of the parts, which are equal.
    """
    token = _PART.set((part, count))
    try:
        yield
    finally:
        _PART.reset(token)


def dropout(
    inputs: Tensor,
    rate: float,
    noise_shape: Sequence[int] | None = None,
    seed: keras.random.SeedGenerator | None = None,
) -> Tensor:
    """Does as `keras.random.dropout`, on a part of a batch, (examples, ...)."""
    if _PART.get()[1] == 1:
        return keras.random.dropout(inputs, rate, noise_shape, seed)

    def draw(shape):
        return keras.random.dropout(jnp.ones(shape), rate, seed=seed)

    kept = _drawn(draw, inputs.shape if noise_shape is None else noise_shape) > 0
    return jnp.where(kept, inputs / (1 - rate), jnp.zeros([], inputs.dtype))


def uniform(
    shape: Sequence[int],
    dtype: str = "float32",
    seed: keras.random.SeedGenerator | None = None,
) -> Tensor:
    """Does as `keras.random.uniform` from 0 to 1, for a part of a batch, (examples, ...)."""
    return _drawn(lambda whole: keras.random.uniform(whole, dtype=dtype, seed=seed), shape)


def randint(
    shape: Sequence[int], minval: int, maxval: int, seed: keras.random.SeedGenerator | None = None
) -> Tensor:
    """Does as `keras.random.randint`, int32, for a part of a batch, (examples, ...)."""
    return _drawn(lambda whole: keras.random.randint(whole, minval, maxval, seed=seed), shape)


def _drawn(draw: Callable[[tuple[int, ...]], Tensor], shape: Sequence[int]) -> Tensor:
    """Returns the part's rows of what `draw` gives for the whole batch."""
    part, count = _PART.get()
    if count == 1:
        return draw(tuple(shape))
    examples, *others = shape
    rows = draw((examples * count, *others)).reshape(examples, count, *others)
    return jax.lax.dynamic_index_in_dim(rows, part, axis=1, keepdims=False)
