"""Tracing of the pipelines' functions, and a check inside graphs."""

from collections.abc import Callable

import tensorflow as tf


def as_it_stands(function: Callable) -> Callable:
    """Returns a function for `Dataset.map` that is traced without converting its control flow.

    Converting takes seconds, and functions of tensors alone have none to convert.
    """
    return tf.autograph.experimental.do_not_convert(function)


def traced_once(*specs: tf.TensorSpec, inline: bool = True) -> Callable[[Callable], Callable]:
    """Returns a decorator: traces a function of tensors of `specs` once for all pipelines.

    Tracing it for each takes a second. The function has no Python control flow. Without `inline`, a
    graph holds it as one operation, which suits the branch of a conditional that is rarely taken:
    TensorFlow passes every operation of the branch that is not taken.
    """
    attributes = {} if inline else {"_noinline": True}
    return tf.function(input_signature=specs, autograph=False, experimental_attributes=attributes)


def require(condition: tf.Tensor, message: str, received: tf.Tensor) -> tf.Operation | None:
    """Raises InvalidArgumentError with `message` and `received` unless `condition` holds.

    `tf.debugging.Assert` adds a conditional, which costs more than the check. Functions of tf.data
    and `tf.function` run the check even though nothing depends on it; what must wait for it depends
    on the operation that is returned (None eagerly).
    """
    return tf.raw_ops.Assert(condition=condition, data=[message, received], summarize=8)
