"""Features of a whole split, computed once and kept on disk."""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from keras_vit.checkpoints.array_files import DAMAGE
from training.io.atomic import atomic_file


def extract(function: Callable, dataset: Iterable[Mapping]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the features and labels of every image that is not padding.

    Args:
        function: images -> (batch, dimensions) floats.
        dataset: batches of `{"image", "label", "mask"}` with one label per image; label is
            (batch, classes) one-hot, mask (batch,) is 0 for padding and may be absent.

    Returns:
        ((images, dimensions) float32, (images,) int32).
    """
    features, labels = [], []
    for batch in dataset:
        one_hot = np.asarray(batch["label"])
        kept = np.asarray(batch["mask"]) > 0 if "mask" in batch else np.ones(len(one_hot), bool)
        if (np.count_nonzero(one_hot[kept], axis=1) != 1).any():
            raise ValueError(
                "Expected exactly one label for every image. Received: images with several or "
                "none, which a linear classifier cannot be solved from."
            )
        values = np.asarray(function(batch["image"]), np.float32)
        if values.ndim != 2:
            raise ValueError(
                "Expected features of shape (batch, dimensions). "
                f"Received: {values.shape}; name a pooled output with --layer"
            )
        features.append(values[kept])
        labels.append(one_hot[kept].argmax(axis=1).astype(np.int32))
    return np.concatenate(features), np.concatenate(labels)


def cached(
    key: Mapping, compute: Callable[[], tuple[np.ndarray, np.ndarray]], directory: os.PathLike
) -> tuple[np.ndarray, np.ndarray]:
    """Returns what `compute` returned the first time that it was called with this key.

    Args:
        key: everything that the result depends on, serializable as JSON.
        compute: returns (features, labels).
        directory: where results are kept, one `.npz` file per key. A file appears as a whole or
            not at all, and one that cannot be read is computed again.
    """
    directory = pathlib.Path(directory)
    text = json.dumps(key, sort_keys=True)
    path = directory / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"
    stored = kept(path)
    if stored is not None:
        return stored
    features, labels = compute()
    with atomic_file(path) as temporary:
        np.savez(temporary, features=features, labels=labels, key=np.array(text))
    return features, labels


def kept(path: os.PathLike) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the features and labels of a file of `cached`; None without one, or if damaged."""
    try:
        with np.load(path) as file:
            return file["features"], file["labels"]
    except DAMAGE:
        return None
