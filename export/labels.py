"""Class names that travel with a model."""

from collections.abc import Iterable

import keras

from export.portable_model import num_classes


def labels_of_model(labels: Iterable[str] | None, model: keras.Model) -> list[str] | None:
    """Returns `labels`, checked, or where they are None the model's own, if it knows them."""
    if labels is None:
        labels = model.class_names
    return None if labels is None else checked_labels(labels, num_classes(model))


def checked_labels(labels: Iterable[str], expected: int | None) -> list[str]:
    """Returns `labels` as a list of strings, one for each logit.

    Raises:
        ValueError: if their number is not `expected`, or one is no text, empty, or has a line
            break or the character 0.
    """
    labels = list(labels)
    if expected is None:
        raise ValueError("Expected no labels for a model without a head. Pass labels=None.")
    if len(labels) != expected:
        raise ValueError(
            f"Expected one label for each of the model's {expected} classes. "
            f"Received: {len(labels)} labels."
        )
    for label in labels:
        # A line break at its end, too, makes another line in a file of labels.
        if not isinstance(label, str) or not label.strip() or label.splitlines() != [label]:
            raise ValueError(f"Expected labels of one line each. Received: {label!r}")
        if "\0" in label:
            raise ValueError(f"Expected labels without the character 0. Received: {label!r}")
    return labels
