"""Functions of tensors that every pipeline calls: tracing them anew for each takes a second."""

from collections.abc import Callable

import tensorflow as tf


def traced_once(*specs: tf.TensorSpec) -> Callable[[Callable], Callable]:
    """Returns a decorator: of a function, without Python control flow, of tensors of `specs`."""
    return tf.function(input_signature=specs, autograph=False)
