"""Where rates are scored: the paper's split, or the last part of the training set."""

import pathlib

import pytest

from tests.training.data.helpers import write_photos
from training import data
from training.data import registry
from training.protocols.development_split import development_splits


def opened(name):
    """Returns a data set of the table as if it were on disk."""
    return data.Dataset(registry.row(name), pathlib.Path())


@pytest.mark.parametrize(
    "dataset, split, share, expected",
    [
        ("cifar10", "train", 0.5, ("train[:98%]", "train[98%:]")),
        ("imagenet2012", "train", 0.5, ("train[:99%]", "train[99%:]")),
        ("oxford_iiit_pet", "train", 0.5, ("train[:90%]", "train[90%:]")),
        ("vtab/dtd", "train800val200", 0.5, ("train800", "val200")),
        ("cifar10", "train[:5000]", 0.02, ("train[0:4900]", "train[4900:5000]")),
        ("cifar10", "train[10%:20%]", 0.1, ("train[5000:9500]", "train[9500:10000]")),
        (
            "oxford_flowers102",
            "train+validation",
            0.6,
            ("train[0:816]", "train[816:1020]+validation[0:1020]"),
        ),
    ],
)
def test_development_splits(dataset, split, share, expected):
    spec = registry.row(dataset)
    first, second = development_splits(opened(dataset), split, share)
    assert (first, second) == expected
    assert spec.num_examples(first) + spec.num_examples(second) == spec.num_examples(split)


def test_too_small_to_split():
    with pytest.raises(ValueError, match="at least 2 images"):
        development_splits(opened("cifar10"), "train[:1]", 0.1)


@pytest.mark.parametrize(
    "split, share, expected",
    [
        ("train", 0.1, ("train[0%:90%]", "train[90%:100%]")),
        ("train[:80%]", 0.25, ("train[0%:60%]", "train[60%:80%]")),
        ("train[50%:]", 0.5, ("train[50%:75%]", "train[75%:100%]")),
        ("train+test", 0.5, ("train[0%:50%]+test[0%:50%]", "train[50%:100%]+test[50%:100%]")),
    ],
)
def test_photos_are_split_class_by_class(tmp_path, split, share, expected):
    names = [
        f"{part}/{kind}/{k}.png" for part in ("train", "test") for kind in "ab" for k in range(40)
    ]
    write_photos(tmp_path, names)
    dataset = data.open_dataset(f"folder:{tmp_path}")
    assert development_splits(dataset, split, share) == expected
    first, second = (dataset.split(text).photos for text in expected)
    assert sorted(first + second) == sorted(dataset.split(split).photos)
    counts = [
        [photo.label for photo in part].count(label) for part in (first, second) for label in (0, 1)
    ]
    assert min(counts) > 0
