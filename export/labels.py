"""Class names that travel with a model."""

import os
import pathlib
from collections.abc import Iterable


def read_labels(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a text file of class names, one a line, in the order of the logits."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()]


def checked_labels(labels: Iterable[str], num_classes: int | None) -> list[str]:
    """Returns `labels` as a list of strings, one for each logit.

    Raises:
        ValueError: if their number is not `num_classes`, or one is empty or has a line break.
    """
    labels = [str(label) for label in labels]
    if num_classes is None:
        raise ValueError("Expected no labels for a model without a head. Pass labels=None.")
    if len(labels) != num_classes:
        raise ValueError(
            f"Expected one label for each of the model's {num_classes} classes. "
            f"Received: {len(labels)} labels."
        )
    for label in labels:
        if not label.strip() or len(label.splitlines()) != 1:
            raise ValueError(f"Expected labels of one line each. Received: {label!r}")
    return labels
