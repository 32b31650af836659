"""Operations on labels."""

from collections.abc import Callable

import tensorflow as tf

from training.data import require_in_graph
from training.data.preprocessing.operation import operation


@operation("one_hot", stage="label")
def one_hot(num_classes: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Labels as float32 (num_classes,); training and evaluation do so by themselves.

    One-hot of a scalar class, multi-hot of a list of them. An empty list gives zeros; evaluation
    leaves such images out of its count.

    Raises:
        InvalidArgumentError: when applied to a class outside 0..num_classes-1, which a one-hot
            encoding would turn into zeros without a word.
    """

    def apply(label):
        label = tf.convert_to_tensor(label)
        valid = (label >= 0) & (label < num_classes)
        require_in_graph.require(
            valid if label.shape.rank == 0 else tf.reduce_all(valid),
            f"Expected labels in 0..{num_classes - 1}. Received:",
            label,
        )
        encoded = tf.one_hot(label, num_classes, dtype=tf.float32)
        if label.shape.rank == 1:
            # A maximum over no rows would be -inf.
            encoded = tf.minimum(tf.reduce_sum(encoded, axis=0), 1.0)
        return tf.ensure_shape(encoded, (num_classes,))

    return apply
