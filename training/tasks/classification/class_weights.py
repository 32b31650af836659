"""The weights of classes in the loss."""

from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import UsageError


def class_weights(text: str, split: Any) -> tuple[float, ...] | None:
    """Returns the weight of each class in a loss, or None where all images count alike.

    Balanced weights are n / (k n_c) of a class with n_c of the n labels, where k classes have
    any: each of them adds as much to the loss, and the mean over the images is 1.

    Args:
        text: `config.class_weights`: "", "balanced", or numbers separated by commas.
        split: that trains.

    Raises:
        UsageError: if these are no numbers that are finite and not negative, one for each class.
    """
    if not text:
        return None
    if text == "balanced":
        return balanced(label_counts(split))
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    expected = split.dataset.num_classes
    if len(weights) != expected or not 0 < sum(weights) < float("inf") or min(weights) < 0:
        raise UsageError(
            f"config.class_weights: expected 'balanced', or {expected} finite numbers, one for "
            f"each class and not all 0, separated by commas. Received: {text!r}."
        )
    return weights


def balanced(counts: np.ndarray) -> tuple[float, ...]:
    """Returns balanced weights of classes with so many labels; 0 of one without any."""
    sizes, even = np.count_nonzero(counts) * counts, np.zeros(len(counts))
    return tuple(np.divide(counts.sum(), sizes, where=counts > 0, out=even).tolist())


def label_counts(split: Any) -> np.ndarray:
    """Returns how many labels each class has, int64 (num_classes,); reads every record.

    Raises `UsageError` for a label that is not below the number of classes.
    """
    counts = np.zeros(split.dataset.num_classes, np.int64)
    indices = tf.data.Dataset.range(split.num_examples)
    labels = indices.map(lambda index: split.read(index)["label"], tf.data.AUTOTUNE)
    for each in labels.as_numpy_iterator():
        if np.max(each, initial=0) >= len(counts):
            raise UsageError(f"Expected labels below {len(counts)}. Received: {each}")
        # TFDS writes -1 where it knows no label.
        np.add.at(counts, each[each >= 0], 1)
    return counts
