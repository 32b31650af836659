"""Where rates are scored: the paper's split, or the last part of the training set."""

import pytest

from training.data import dataset_lookup
from training.protocols.development_split import development_splits


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
    spec = dataset_lookup.get(dataset)
    first, second = development_splits(spec, split, share)
    assert (first, second) == expected
    assert spec.num_examples(first) + spec.num_examples(second) == spec.num_examples(split)


def test_too_small_to_split():
    with pytest.raises(ValueError, match="at least 2 images"):
        development_splits(dataset_lookup.get("cifar10"), "train[:1]", 0.1)
