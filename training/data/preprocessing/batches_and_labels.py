"""Operations on batches and labels: mixup (Zhang et al., 2017) and one-hot labels."""

from collections.abc import Callable

import tensorflow as tf

from training.data.graph import require
from training.data.preprocessing.operation import operation


@operation("mixup", stage="batch")
def mixup(p: float) -> Callable[..., dict[str, tf.Tensor]]:
    """Blends every image and label with its partner, the image before it in the batch.

    λ ~ Beta(p, p), λ ← max(λ, 1 − λ), one λ for the global batch of a step.
    """
    if p < 0:
        raise ValueError(f"Expected mixup's p to be at least 0. Received: {p}.")

    def apply(batch, partner, seed):
        weight = mixup_weight(p, seed)
        return {
            key: weight * tf.cast(batch[key], tf.float32)
            + (1 - weight) * tf.cast(partner[key], tf.float32)
            for key in batch
        }

    return apply


def mixup_weight(p: float, seed: tf.Tensor) -> tf.Tensor:
    """Returns λ in 0.5..1 for `seed`, integers (2,); float32 scalar, 1 if p is 0."""
    if p == 0:
        return tf.ones(())
    # Beta as a ratio of gammas, in float64: those of small p underflow in float32.
    first, second = tf.unstack(
        tf.random.stateless_gamma((2,), seed, alpha=tf.constant(p, tf.float64), dtype=tf.float64)
    )
    weight = tf.math.divide_no_nan(first, first + second)
    return tf.cast(tf.maximum(weight, 1 - weight), tf.float32)


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
        valid = tf.reduce_all((label >= 0) & (label < num_classes))
        require(valid, f"Expected labels in 0..{num_classes - 1}. Received:", label)
        encoded = tf.one_hot(label, num_classes, dtype=tf.float32)
        if label.shape.rank == 1:
            # A maximum over no rows would be -inf.
            encoded = tf.minimum(tf.reduce_sum(encoded, axis=0), 1.0)
        return tf.ensure_shape(encoded, (num_classes,))

    return apply
