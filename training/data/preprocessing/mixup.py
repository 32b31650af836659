"""Operations on labels, and on batches: one-hot encoding, mixup."""

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from ...tasks.classification import encode_classes
from .parse_operations import operation


@operation("one_hot", stage="label")
def one_hot(num_classes: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Labels as float32 (num_classes,); classification does so by itself."""
    return partial(encode_classes, num_classes=num_classes)


@operation("mixup", stage="batch")
def mixup(p: float) -> Callable[..., dict[str, tf.Tensor]]:
    """Blends every image and label with its partner, the image before it in the batch.

    λ ~ Beta(p, p), λ ← max(λ, 1 − λ), one λ for the global batch of a step.
    """
    if not 0 <= p < np.inf:
        raise ValueError(f"Expected mixup's p to be at least 0 and finite. Received: {p}.")

    def apply(batch, partner, seed):
        weight = tf.constant(1.0)
        if p > 1e-300:
            # A beta is a ratio of gammas, by their logarithms: those of small p underflow.
            of_gammas, of_uniforms = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
            alpha = tf.constant(p, tf.float64)
            gammas = tf.random.stateless_gamma((2,), of_gammas, alpha + 1, dtype=alpha.dtype)
            uniforms = 1 - tf.random.stateless_uniform((2,), of_uniforms, dtype=alpha.dtype)
            first, second = tf.unstack(tf.math.log(gammas) + tf.math.log(uniforms) / alpha)
            weight = tf.cast(tf.sigmoid(tf.abs(first - second)), tf.float32)

        def blend(one, other):
            return weight * tf.cast(one, tf.float32) + (1 - weight) * tf.cast(other, tf.float32)

        return {key: blend(batch[key], partner[key]) for key in batch}

    return apply
