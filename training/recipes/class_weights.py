"""The weights of the classes in the training loss."""

import numpy as np

from training.data import Split
from training.errors import UsageError

BALANCED = "balanced"


def class_weights(text: str, split: Split) -> tuple[float, ...] | None:
    """Returns the weight of each class, or None where all images count alike.

    Balanced weights are n / (k n_c) of a class with n_c of the n labels, where k classes have any:
    each of them adds as much to the loss, and the mean over the images is 1.

    Args:
        text: `config.class_weights`: "", "balanced", or numbers separated by commas.
        split: the training split, which `balanced` reads once.

    Raises:
        UsageError: if these are no numbers that are finite and not negative, one for each class.
    """
    if not text:
        return None
    if text == BALANCED:
        return _balanced(split.label_counts())
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    expected = split.dataset.num_classes
    if len(weights) != expected or not all(0 <= weight < float("inf") for weight in weights):
        raise UsageError(
            f"config.class_weights: expected {BALANCED!r}, or {expected} finite numbers, one for "
            f"each class, separated by commas. Received: {text!r}."
        )
    return weights


def _balanced(counts):
    present = np.count_nonzero(counts)
    shares = np.divide(counts.sum(), present * counts, where=counts > 0, out=np.zeros(len(counts)))
    return tuple(shares.tolist())
