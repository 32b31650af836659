"""Arithmetic that takes the place of the layers' own while a model is traced for one processor."""

import contextlib
import contextvars

_KERNELS = contextvars.ContextVar("kernels", default=None)


@contextlib.contextmanager
def substituted(kernels):
    """Within the context, layers compute with `kernels` where it has what they need.

    Args:
        kernels: has the functions `layer_normalization(inputs, gamma, beta, epsilon)` and
            `attention(layer, tokens, first_token_only)`, for inference.
    """
    token = _KERNELS.set(kernels)
    try:
        yield
    finally:
        _KERNELS.reset(token)


def substitute():
    """Returns the kernels to compute with, or None for the layers' own arithmetic."""
    return _KERNELS.get()
