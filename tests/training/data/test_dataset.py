import numpy as np
import pytest
import tensorflow as tf

import training
from training.data import load_dataset


def test_the_public_door_is_this_function():
    assert training.load_dataset is load_dataset.load_dataset


def test_examples_are_rgb_bytes_and_classes(digits_dir):
    dataset = training.load_dataset("digits", "test", data_dir=digits_dir)
    assert dataset.element_spec == {
        "image": tf.TensorSpec((None, None, 3), tf.uint8),
        "label": tf.TensorSpec((), tf.int64),
    }
    assert dataset.cardinality() == 359


def test_batches_keep_the_remainder(digits_dir):
    dataset = training.load_dataset(
        "digits", "test", data_dir=digits_dir, preprocess="decode|resize(16)", batch_size=100
    )
    assert [len(batch["label"]) for batch in dataset] == [100, 100, 100, 59]


def test_one_hot_by_argument_or_by_text(digits_dir):
    def labels(**arguments):
        dataset = training.load_dataset("digits", "test[:20]", data_dir=digits_dir, **arguments)
        return np.stack([one["label"] for one in dataset])

    plain = labels()
    np.testing.assert_array_equal(labels(one_hot=True), np.eye(10)[plain])
    np.testing.assert_array_equal(labels(preprocess="decode|one_hot(12)"), np.eye(12)[plain])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_error": "quiet"}, "'raise' or 'skip'"),
        ({"preprocess": "decode|mixup(0.1)"}, "no mixup outside training"),
    ],
)
def test_wrong_arguments_are_explained(digits_dir, arguments, message):
    with pytest.raises(ValueError, match=message):
        training.load_dataset("digits", "test", data_dir=digits_dir, **arguments)


def test_ids_of_vtab_1k_are_those_of_its_slices(tiny, resize_row):
    # The least size for which the absolute slices of an 80/20 task exist.
    image = np.zeros((4, 4, 3), np.uint8)
    sizes = {"train": 1_000, "test": 3}
    fixed = {"image": image, "segmentation_mask": image[..., :1]}
    data_dir = tiny("oxford_iiit_pet", {split: [fixed] * size for split, size in sizes.items()})
    resize_row("vtab/oxford_iiit_pet", sizes)

    def ids(split):
        return load_dataset.example_ids("vtab/oxford_iiit_pet", split, data_dir=data_dir)

    prefix = "oxford_iiit_pet-train.tfrecord-00000-of-00001__"
    assert ids("train800") == [f"{prefix}{k}" for k in range(800)]
    assert ids("train800val200") == [f"{prefix}{k}" for k in range(1_000)]
    assert len(ids("test")) == 3
