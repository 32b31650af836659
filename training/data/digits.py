"""The embedded data set: scikit-learn's handwritten digits, written as a real TFDS data set.

1,797 grayscale images of 8×8 pixels, the test part of UCI's optdigits. They come with
scikit-learn, so the quickstart needs no network. Importing this module registers
`SklearnDigits` with TFDS; once prepared, the data set is read without importing it.
"""

import contextlib
import io
import os
import pathlib
import shutil

import numpy as np
import tensorflow_datasets as tfds

from keras_vit.training.io.paths import any_path, is_remote, read_path
from keras_vit.training.io.stores import sent

NUM_TEST = 359
SPLIT_SEED = 0


class SklearnDigits(tfds.core.GeneratorBasedBuilder):
    """TFDS builder of the digits: `image` uint8 (8, 8, 1) in 0..255 as PNG, `label` 0..9."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Handwritten digits of 8x8 pixels from scikit-learn.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80",
        )

    def _split_generators(self, dl_manager):
        from sklearn.datasets import load_digits

        digits = load_digits()
        # Values are 0..16 inclusive, so a factor of 16 would overflow uint8.
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
        test = stratified_test_indices(digits.target, NUM_TEST, SPLIT_SEED)
        train = np.setdiff1d(np.arange(len(images)), test)
        return {
            "train": self._generate_examples(images, digits.target, train),
            "test": self._generate_examples(images, digits.target, test),
        }

    def _generate_examples(self, images, labels, indices):
        for index in indices:
            yield int(index), {"image": images[index], "label": int(labels[index])}


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
    """Writes the digits below `data_dir` unless they are there, and returns their folder.

    Several processes may call it at once: each writes to a hidden folder of its own, and the first
    to finish moves its result into place.
    """
    target = any_path(data_dir) / "sklearn_digits" / str(SklearnDigits.VERSION)
    if read_path(target, (target / "dataset_info.json").exists):
        return target
    if is_remote(target):
        with sent(target) as folder:
            # Hidden files are not sent.
            shutil.move(prepare(folder.with_name(".written")), folder)
        return target
    from keras_vit.hidden_folder import hidden_folder  # which starts Keras

    target.parent.mkdir(parents=True, exist_ok=True)
    with hidden_folder(target) as scratch:
        builder = SklearnDigits(data_dir=scratch)
        # TFDS announces a download and its (temporary) folder; here both would mislead.
        tfds.disable_progress_bar()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                builder.download_and_prepare()
        finally:
            tfds.enable_progress_bar()
        try:
            os.rename(builder.data_dir, target)
        except OSError:
            if not (target / "dataset_info.json").exists():
                raise
    return target
