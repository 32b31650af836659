"""Tracing of the pipelines' functions, and a check inside graphs."""

from collections.abc import Callable

import tensorflow as tf

# A function for `Dataset.map` that is traced without converting its control flow. Converting takes
# seconds, and functions of tensors alone have none to convert.
as_it_stands = tf.autograph.experimental.do_not_convert


def traced_once(*specs: tf.TensorSpec, inline: bool = True) -> Callable[[Callable], Callable]:
    """Returns a decorator: traces a function of tensors of `specs` once for all pipelines.

    The function has no Python control flow. Without `inline`, a graph holds it as one operation,
    which suits a branch that is rarely taken: TensorFlow passes every operation of it otherwise.
    """
    attributes = {} if inline else {"_noinline": True}
    return tf.function(input_signature=specs, autograph=False, experimental_attributes=attributes)


def require(condition: tf.Tensor, message: str, received: tf.Tensor) -> tf.Operation | None:
    """Raises InvalidArgumentError with `message` and `received` unless `condition` holds.

    `tf.debugging.Assert` adds a conditional, which costs more than the check. What must wait for
    the check depends on the operation that is returned (None eagerly).
    """
    return tf.raw_ops.Assert(condition=condition, data=[message, received], summarize=8)
