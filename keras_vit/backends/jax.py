"""Random numbers for a part of a batch, the same as the whole batch has there; cuDNN's attention.

An example's random key comes from its position in the global batch, so a device draws for its own
examples only, and a micro-batch too: numbers for all micro-batches would not fit.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.extend
import jax.numpy as jnp
import keras

from keras_vit.type_hints import Tensor

_PART: contextvars.ContextVar[tuple[Tensor, int]] = contextvars.ContextVar("part", default=(0, 1))


@contextlib.contextmanager
def part_of_batch(part: Tensor, count: int) -> Iterator[None]:
    """Enters a context in which these functions draw for one of `count` equal parts of a batch.

    The part's examples are `part`, an int scalar, part + count, part + 2 count, ...
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


@functools.cache
def why_no_cudnn() -> str:
    """Returns why JAX has no attention by cuDNN on this machine, or "" where it has."""
    if "cuda" not in jax.extend.backend.get_backend().platform_version:
        return f"it is for NVIDIA's GPUs, and JAX runs on {jax.default_backend()}"
    if float(capability := jax.local_devices()[0].compute_capability) < 8:
        return f"it needs compute capability 8.0 (Ampere), and the GPU has {capability}"
    array = jax.ShapeDtypeStruct((1, 1, 2, 8), "bfloat16")
    try:
        jax.eval_shape(jax.grad(lambda array: attention(array, array, array).sum()), array)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return str(error).rstrip(".")
    return ""


def on_host() -> bool:
    """Tells whether `jax.default_device` has the host compute beside a GPU."""
    device = jax.config.jax_default_device
    return getattr(device, "platform", device) == "cpu"


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Returns softmax(q k^T) v, equations 6 and 7, (batch, heads, tokens, head_size).

    All are of this shape, bfloat16 or float16, and the query is scaled.
    """
    tokens = query.shape[2]
    # JAX refuses odd numbers of tokens where there is a gradient: one that does not count is added.
    padding = [(0, 0), (0, tokens % 2), (0, 0), (0, 0)]
    lengths = None
    if tokens % 2:
        # `tokens` for each example, computed from the queries so that a mesh divides them alike.
        # A constant would stay whole, and a device get lengths of more examples than it has.
        bits = jax.lax.bitcast_convert_type(query[:, 0, 0, 0], jnp.uint16).astype(jnp.int32)
        lengths = tokens + jnp.minimum(bits, 0)
    heads = jax.nn.dot_product_attention(
        *(jnp.pad(array.transpose(0, 2, 1, 3), padding) for array in (query, key, value)),
        scale=1.0,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return heads[:, :tokens].transpose(0, 2, 1, 3)


def gradient_function(model: keras.Model, score: Callable, finish: Callable) -> Callable:
    """Returns `by_backend.gradient_function`."""

    @jax.jit
    def run(variables, images, probe, *others):
        def scored(probe):
            outputs, _ = model.stateless_call(*variables, [images, probe], training=False)
            return score(outputs, *others), outputs

        gradient, outputs = jax.grad(scored, has_aux=True)(probe)
        return finish(gradient, outputs)

    variables = model.trainable_variables, model.non_trainable_variables
    return lambda *arrays: run([[one.value for one in each] for each in variables], *arrays)
