"""A check of values that only the graph knows."""

import tensorflow as tf


def require(condition: tf.Tensor, message: str, received: tf.Tensor) -> tf.Operation | None:
    """Raises InvalidArgumentError with `message` and `received` unless `condition` holds.

    `tf.debugging.Assert` wraps a conditional around itself, which costs more than the check.
    Functions of tf.data and `tf.function` run the check even though nothing depends on it; what
    must wait for it depends on the operation that is returned (None eagerly).
    """
    return tf.raw_ops.Assert(condition=condition, data=[message, received], summarize=8)
