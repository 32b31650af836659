"""The embedded data set: scikit-learn's handwritten digits, written as a real TFDS data set.

1,797 grayscale images of 8×8 pixels, the test part of UCI's optdigits
(https://archive.ics.uci.edu/dataset/80). They come with scikit-learn, so the quickstart needs no
network.
"""

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from keras_vit.training.data import tfds_folder
from keras_vit.training.io.paths import read_path
from keras_vit.training.io.quiet_start import quiet_start

NUM_TEST = 359
SPLIT_SEED = 0
# As PNG, of uint8 in 0..255.
FEATURES = {
    "image": tfds.features.Image(shape=(8, 8, 1)),
    "label": tfds.features.ClassLabel(num_classes=10),
}


def examples() -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
    """Returns the (key, example) pairs of each split."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    # Values are 0..16 inclusive, so a factor of 16 would overflow uint8.
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    test = stratified_test_indices(digits.target, NUM_TEST, SPLIT_SEED)
    indices = {"train": np.setdiff1d(np.arange(len(images)), test), "test": test}

    def of(index):
        return int(index), {"image": images[index], "label": int(digits.target[index])}

    return {split: map(of, each) for split, each in indices.items()}


def stratified_test_indices(labels: np.ndarray, num_test: int, seed: int) -> np.ndarray:
    """Returns `num_test` sorted indices, each class in proportion (largest remainders first)."""
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    exact = counts * num_test / len(labels)
    take = np.floor(exact).astype(int)
    short = num_test - take.sum()
    take[np.argsort(take - exact, kind="stable")[:short]] += 1
    chosen = [
        rng.permutation(np.flatnonzero(labels == label))[:count]
        for label, count in zip(classes, take, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def prepare(data_dir: str | os.PathLike) -> pathlib.Path:
    """Writes the digits below `data_dir` unless they are there, and returns their folder."""
    target = tfds_folder.resolve_data_dir(data_dir) / "sklearn_digits" / tfds_folder.VERSION
    if read_path(target, (target / "dataset_info.json").exists):
        return target
    with quiet_start():
        text = "Handwritten digits of 8x8 pixels from scikit-learn."
        return tfds_folder.write("sklearn_digits", data_dir, FEATURES, examples(), text)
