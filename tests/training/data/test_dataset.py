"""Data sets of TFDS, opened and read: each schema, each kind of split, and what is missing."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import training
from tests.training.data.helpers import PLAIN, ids
from training import data
from training.data import registry

EDGES = {
    "clevr_distance": (0, 8, 8.5, 9, 9.5, 10, 100),
    "kitti_distance": (-100, 8, 20, 999),
}

# Rules in numpy, from a decoded example of TFDS.
RULES = {
    "clevr_count": lambda one: len(one["objects"]["size"]) - 3,
    "clevr_distance": lambda one: (
        np.searchsorted(EDGES["clevr_distance"], one["objects"]["pixel_coords"][:, 2].min()) - 1
    ),
    "kitti_distance": lambda one: (
        np.searchsorted(
            EDGES["kitti_distance"],
            min(
                [1000.0]
                + [
                    place[2]
                    for place, kind in zip(
                        one["objects"]["location"], one["objects"]["type"], strict=True
                    )
                    if kind in (0, 1, 2)
                ]
            ),
        )
        - 1
    ),
    "dsprites_location": lambda one: one["label_x_position"] // 2,
    "dsprites_orientation": lambda one: int(one["label_orientation"] / 2.5),
}

NAMES = [name for name in registry.DATASETS if name not in ("digits", "imagenet21k")]


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_as_its_own_builder_writes_it(name, tiny, resize_row):
    spec = registry.row(name)
    sizes = {split: 5 + number for number, split in enumerate(spec.sizes)}
    data_dir = tiny(spec.builder, {split: [{}] * size for split, size in sizes.items()})
    resize_row(name, sizes)
    builder = tfds.builder_from_directory(data.open_dataset(name, data_dir).place)
    theirs = {}
    for split in sizes:
        dataset = builder.as_dataset(split, read_config=tfds.ReadConfig(add_tfds_id=True))
        theirs.update({one["tfds_id"]: one for one in tfds.as_numpy(dataset)})

    split = "trainval" if name.startswith("vtab/") else next(iter(sizes))
    ours = list(
        data.load_dataset(name, split, data_dir=data_dir, with_ids=True).as_numpy_iterator()
    )
    found = [one["id"].decode() for one in ours]
    assert ids(name, split, data_dir) == found
    assert len(set(found)) == len(found) == registry.row(name).num_examples(split)
    for one in ours:
        reference = theirs[one["id"]]
        scale = 255 if "dsprites" in name else 1
        image = np.broadcast_to(reference["image"] * scale, one["image"].shape)
        np.testing.assert_array_equal(one["image"], image.astype(np.uint8))
        assert one["image"].shape[-1] == 3
        if name == "imagenet2012_real":
            classes = np.zeros(1_000)
            classes[reference["real_label"]] = 1
            np.testing.assert_array_equal(one["label"], classes)
        else:
            rule = RULES.get(spec.label, lambda example: example[spec.label])
            assert one["label"] == rule(reference)
            assert 0 <= one["label"] < spec.num_classes


def test_slices_across_shards_name_what_tfds_names(numbers):
    builder = tfds.builder_from_directory(numbers / "numbers" / "1.0.0")
    assert len(builder.info.splits["train"].shard_lengths) == 4
    # One shard at a time, as TFDS otherwise mixes them.
    config = tfds.ReadConfig(add_tfds_id=True, interleave_cycle_length=1)
    for split in ("train", "train[5:310]", "train[-3:]", "train[40%:60%]"):
        theirs = [
            (one["tfds_id"], one["label"])
            for one in tfds.as_numpy(builder.as_dataset(split, read_config=config))
        ]
        ours = data.load_dataset("tfds:numbers:1.0.0", split, data_dir=numbers, with_ids=True)
        assert [(one["id"], one["label"]) for one in ours.as_numpy_iterator()] == theirs


def test_a_copy_of_another_size_is_refused(tiny):
    data_dir = tiny("cifar10", {"train": [{}] * 4, "test": [{}] * 2})
    with pytest.raises(ValueError, match=r"Expected 50000 examples .* holds 4\."):
        data.open("cifar10", "train", data_dir)
    # Under its own name any copy is welcome.
    assert data.open("tfds:cifar10", "train", data_dir).num_examples == 4


def test_an_older_version_on_disk_is_found(tiny, resize_row):
    data_dir = tiny("oxford_flowers102", {"train": [{}] * 4})
    folder = data_dir / "oxford_flowers102"
    (folder / "2.1.1").rename(folder / "2.0.0")
    info = folder / "2.0.0" / "dataset_info.json"
    info.write_text(info.read_text().replace("2.1.1", "2.0.0"))
    resize_row("oxford_flowers102", {"train": 4})
    assert data.open("flowers", "train", data_dir).num_examples == 4


def test_an_interrupted_preparation_is_explained(tmp_path):
    (tmp_path / "cifar10" / "3.0.2").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"no dataset_info\.json.*Delete the folder"):
        data.open("cifar10", "train", tmp_path)


def test_a_configuration_must_be_named_if_there_are_several(tiny):
    data_dir = tiny("eurosat/rgb", {"train": [{}] * 3})
    found = data.open_dataset("tfds:eurosat/rgb", data_dir)
    assert found.spec.sizes == {"train": 3}
    # Names of classes come from the copy.
    assert found.class_names[:2] == ("AnnualCrop", "Forest")
    assert len(found.class_names) == found.num_classes == 10
    with pytest.raises(FileNotFoundError, match="write tfds:eurosat/rgb"):
        data.open_dataset("tfds:eurosat", data_dir)


def test_label_counts_are_those_of_the_split(digits_split):
    split = digits_split("train[:300]")
    labels = [int(split.read(tf.constant(index, tf.int64))["label"]) for index in range(300)]
    assert split.label_counts().tolist() == np.bincount(labels, minlength=10).tolist()


def test_examples_are_rgb_bytes_and_classes(digits_dir):
    dataset = training.load_dataset("digits", "test", data_dir=digits_dir)
    assert dataset.element_spec == {
        "image": tf.TensorSpec((None, None, 3), tf.uint8),
        "label": tf.TensorSpec((), tf.int64),
    }
    assert dataset.cardinality() == 359
    options = {"data_dir": digits_dir, "preprocess": PLAIN, "batch_size": 100}
    batches = training.load_dataset("digits", "test", **options)
    assert [len(batch["label"]) for batch in batches] == [100, 100, 100, 59]


def test_one_hot_by_argument_or_by_text(digits_dir):
    def labels(**arguments):
        dataset = training.load_dataset("digits", "test[:20]", data_dir=digits_dir, **arguments)
        return np.stack([one["label"] for one in dataset])

    plain = labels()
    np.testing.assert_array_equal(labels(one_hot=True), np.eye(10)[plain])
    np.testing.assert_array_equal(labels(preprocess="decode|one_hot(12)"), np.eye(12)[plain])


def test_wrong_arguments_are_explained(digits_dir):
    with pytest.raises(ValueError, match="'raise' or 'skip'"):
        training.load_dataset("digits", "test", data_dir=digits_dir, on_error="quiet")
    with pytest.raises(ValueError, match="no mixup outside training"):
        training.load_dataset("digits", "test", data_dir=digits_dir, preprocess="decode|mixup(0.1)")


def test_ids_of_vtab_1k_are_those_of_its_slices(tiny, resize_row):
    # The least size for which the absolute slices of an 80/20 task exist.
    image = np.zeros((4, 4, 3), np.uint8)
    sizes = {"train": 1_000, "test": 3}
    fixed = {"image": image, "segmentation_mask": image[..., :1]}
    data_dir = tiny("oxford_iiit_pet", {split: [fixed] * size for split, size in sizes.items()})
    resize_row("vtab/oxford_iiit_pet", sizes)

    def found(split):
        return ids("vtab/oxford_iiit_pet", split, data_dir)

    prefix = "oxford_iiit_pet-train.tfrecord-00000-of-00001__"
    assert found("train800") == [f"{prefix}{k}" for k in range(800)]
    assert found("train800val200") == [f"{prefix}{k}" for k in range(1_000)]
    assert len(found("test")) == 3
