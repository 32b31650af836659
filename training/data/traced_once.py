"""Functions of tensors that every pipeline calls: tracing them anew for each takes a second."""

from collections.abc import Callable

import tensorflow as tf


def traced_once(*specs: tf.TensorSpec, inline: bool = True) -> Callable[[Callable], Callable]:
    """Returns a decorator: of a function, without Python control flow, of tensors of `specs`.

    Without `inline`, a graph holds the function as one operation. That suits what is rarely called:
    TensorFlow writes both branches of a conditional into the graph, and passes every operation of
    the one that is not taken.
    """
    attributes = {} if inline else {"_noinline": True}
    return tf.function(input_signature=specs, autograph=False, experimental_attributes=attributes)
