import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit import training
from keras_vit.training import data
from keras_vit.training.data.sets import known_datasets, vtab_labels
from keras_vit.training.data.sets.splits import Range
from keras_vit.training.data.sets.tfds_folder import NotPreparedError
from keras_vit.training.errors import TrainingError
from keras_vit.training.paper_tables import VTAB
from tests.training.data.helpers import ids, write_photos

NAMES = {  # One of each builder and label.
    (row.builder, row.label): name
    for name, row in known_datasets.DATASETS.items()
    if name not in ("digits", "digits_masks", "imagenet21k")
}
# Whose labels, images or splits are read as no other's.
QUICK = ("imagenet2012_real", "cifar10", "vtab/dsprites_location", "vtab/kitti_distance")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.long) for n in NAMES.values()]
)
def test_every_schema_as_its_own_builder_writes_it(name, tiny, resize_row):
    spec = known_datasets.row(name)
    sizes = {split: 5 + number for number, split in enumerate(spec.sizes)}
    street = np.zeros((1024, 2048, 3), np.uint8)
    masks = {
        "pet_mask": {"segmentation_mask": np.full((4, 5, 1), 3, np.uint8)},
        "cityscapes_mask": {"image_left": street, "segmentation_label": street[..., :1] + 26},
    }
    own = masks.get(spec.label, {})
    data_dir = tiny(spec.builder, {split: [own] * size for split, size in sizes.items()})
    resize_row(name, sizes)
    builder = tfds.builder_from_directory(data.open_dataset(name, data_dir).place)
    config = tfds.ReadConfig(add_tfds_id=True)
    splits = (tfds.as_numpy(builder.as_dataset(split, read_config=config)) for split in sizes)
    theirs = {one["tfds_id"]: one for dataset in splits for one in dataset}

    split = "trainval" if name.startswith("vtab/") else next(iter(sizes))
    ours = data.load_dataset(name, split, data_dir=data_dir, with_ids=True)
    ours = {one["id"].decode(): one for one in ours.as_numpy_iterator()}
    assert ids(name, split, data_dir) == [*ours]
    assert len(ours) == known_datasets.row(name).num_examples(split)
    for one in ours.values():
        reference = theirs[one["id"]]
        scale = 255 if "dsprites" in name else 1
        image = np.broadcast_to(reference[spec.image] * scale, one["image"].shape)
        np.testing.assert_array_equal(one["image"], image.astype(np.uint8))
        assert one["image"].shape[-1] == 3
        # TFDS's own example, decoded; see below for the rules themselves.
        label = np.asarray(vtab_labels.rule(spec.label).classify(reference))
        if label.ndim == 1:
            classes = np.isin(np.arange(spec.num_classes), label)
            np.testing.assert_array_equal(one["label"], classes)
        else:
            np.testing.assert_array_equal(one["label"], label)
            assert np.all((one["label"] >= 0) & (one["label"] < spec.num_classes))


def test_files_that_are_written_again_are_others_for_caches(digits_split, data_dir, tmp_path):
    split = digits_split("test")
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.rglob("*test.tfrecord*"):
        os.utime(file, (1, 1))
    other = data.open("digits", "test", tmp_path)
    assert other.fingerprint["digest"] == split.fingerprint["digest"]
    assert other.identity != split.identity
    other.dataset.require_unchanged()
    for change in (lambda: os.utime(file, (2, 2)), file.unlink):
        change()
        with pytest.raises(TrainingError, match="were replaced while digits was read"):
            other.dataset.require_unchanged()


def test_slices_across_shards_name_what_tfds_names(numbers):
    builder = tfds.builder_from_directory(numbers / "numbers" / "1.0.0")
    assert len(builder.info.splits["train"].shard_lengths) == 4
    # One shard at a time, as TFDS otherwise mixes them.
    config = tfds.ReadConfig(add_tfds_id=True, interleave_cycle_length=1)
    for split in ("train[5:310]", "train[40%:]"):
        dataset = tfds.as_numpy(builder.as_dataset(split, read_config=config))
        theirs = [(one["tfds_id"], one["label"]) for one in dataset]
        ours = data.load_dataset("tfds:numbers:1.0.0", split, data_dir=numbers, with_ids=True)
        assert [(one["id"], one["label"]) for one in ours.as_numpy_iterator()] == theirs
        assert ids("tfds:numbers:1.0.0", split, numbers) == [one.decode() for one, _ in theirs]


def test_a_copy_of_another_size_is_refused_and_the_newest_version_is_read(tiny):
    data_dir = tiny("eurosat/rgb", {"train": [{}] * 4})
    with pytest.raises(ValueError, match=r"Expected 27000 examples .* holds 4\."):
        data.open("vtab/eurosat", "train", data_dir)
    # Under its own name any copy is welcome, and of other versions.
    (version,) = (data_dir / "eurosat" / "rgb").iterdir()
    for number in ("2.9.0", "2.10.0"):
        shutil.copytree(version, version.with_name(number))
        info = version.with_name(number) / "dataset_info.json"
        info.write_text(info.read_text().replace(version.name, number))
    # Nor does TFDS write such a name.
    shutil.copytree(version.with_name("2.10.0"), version.with_name("2.010.0"))
    found = data.open_dataset("tfds:eurosat/rgb:2.*.*", data_dir)
    assert found.spec.sizes == {"train": 4} and found.place.name == "2.10.0"
    assert data.open_dataset("tfds:eurosat/rgb:2.9.*", data_dir).place.name == "2.9.0"
    assert found.class_names[:2] == ("AnnualCrop", "Forest")  # Names of classes come from the copy.
    assert len(found.class_names) == found.num_classes == 10


def test_one_hot_by_argument_or_by_text(data_dir):
    def labels(**arguments):
        dataset = training.load_dataset("digits", "test[:20]", data_dir=data_dir, **arguments)
        return np.stack([one["label"] for one in dataset])

    plain = labels()
    np.testing.assert_array_equal(labels(one_hot=True), np.eye(10)[plain])
    np.testing.assert_array_equal(labels(preprocess="decode|one_hot(12)"), np.eye(12)[plain])
    with pytest.raises(ValueError, match="'raise' or 'skip'"):
        labels(on_error="quiet")
    with pytest.raises(ValueError, match="no mixup outside training"):
        labels(preprocess="decode|mixup(0.1)")


@pytest.mark.rows(("test[:20]+test[50:70]", 15), ("train", 0), ("test[30:50]", 0))
def test_images_that_train_and_are_scored_are_said(split, shared, digits, tmp_path, caplog):
    digits.split("test[10:30]+test[55:60]").warn_of_shared(digits.split(split))
    write_photos(tmp_path, [f"{part}/a/{k}.png" for part in ("train", "test") for k in "12"])
    shutil.copy(tmp_path / "train" / "a" / "1.png", tmp_path / "test" / "a" / "copy.png")
    photos = data.open_dataset(f"folder:{tmp_path}")
    photos.split("test").warn_of_shared(photos.split(split.partition("[")[0]))
    counts = [each.args[:2] for each in caplog.records if each.module == "opened_dataset"]
    assert counts == ([(shared, 25)] if shared else []) + [(1 if split == "train" else 3, 3)]


SPLITS = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "splits.json").read_text())


@pytest.mark.parametrize("name", SPLITS["fine_tuning"])
def test_sizes_of_the_fine_tuning_protocol(name):
    spec, expected = known_datasets.row(name), SPLITS["fine_tuning"][name]
    assert {split: spec.num_examples(split) for split in expected} == expected
    if spec.dev:
        # They share no example and make up `train`.
        (sweep, *_), (dev, *_) = (spec.ranges(text) for text in spec.dev)
        assert (sweep.start, sweep.stop, dev.stop) == (0, dev.start, spec.sizes["train"])


def members(spec, split):
    return {(part.split, k) for part in spec.ranges(split) for k in range(part.start, part.stop)}


@pytest.mark.parametrize("name", SPLITS["vtab"])
def test_splits_of_vtab_1k(name):
    spec, expected = known_datasets.row(f"vtab/{name}"), SPLITS["vtab"][name]
    train800, val200 = Range("train", 0, 800), Range(*expected["val200"])
    found = [spec.ranges(split) for split in ("train800", "val200", "train800val200", "test")]
    assert found == [[train800], [val200], [train800, val200], [Range(*expected["test"])]]
    assert spec.num_classes == expected["classes"]
    assert spec.num_examples("train800val200") == 1_000
    if spec.num_examples("trainval") < 100_000:
        assert not members(spec, "trainval") & members(spec, "test")
        assert members(spec, "train800val200") <= members(spec, "trainval")


def test_caltechs_later_builds_have_three_images_less_and_no_flip_changes_a_label(resize_row):
    resize_row("vtab/caltech101", {"train": 3_057, "test": 6_084})
    assert known_datasets.row("vtab/caltech101").ranges("val200") == [Range("train", 2751, 2951)]
    structured = [*SPLITS["vtab"]][-8:]
    assert {task.name for task in VTAB if not task.flip} == {"svhn", *structured}


@pytest.mark.rows(
    ("birds", r"^Expected folder:/path .* one of digits.* data set 'birds'"),
    ("pet", r"^Did you mean pets\? .* data set 'pet'"),
    ("{folder}", r"^Did you mean folder:{folder}\? Expected folder:/path"),
    ("cifar100", r"169 MB.* keras-vit data prepare cifar100 --data_dir={folder}"),
    ("imagenet2012", r"ILSVRC2012_img_train\.tar.*{folder}/downloads/manual"),
    ("imagenet21k", r"{folder}.* builder .*imagenet21k"),
    ("tfds:mnist", r"prepare tfds:mnist --data_dir={folder}"),
    ("cifar10", r"no dataset_info\.json.*Delete the folder"),  # Whose preparation was interrupted.
)
def test_what_is_unknown_or_not_prepared_says_how_to_get_it(name, message, tmp_path):
    (tmp_path / "cifar10" / "3.0.2").mkdir(parents=True)
    with pytest.raises((ValueError, NotPreparedError), match=message.format(folder=tmp_path)):
        data.open_dataset(name.format(folder=tmp_path), tmp_path)


def both(rule, example):
    classify = vtab_labels.rule(rule).classify
    eager = int(classify(example))
    assert int(tf.function(lambda one: classify(one))(example)) == eager
    return eager


def test_clevr_and_dsprites():
    for objects, expected in ((3, 0), (10, 7)):
        example = {"objects": {"size": tf.zeros((objects,), tf.int64)}}
        assert both("clevr_count", example) == expected
    nearest = (7.9, 8, 8.0001, 8.5, 8.5001, 9, 9.5, 9.6, 10, 10.01, 99)
    for distance, expected in zip(nearest, (0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 5), strict=True):
        coords = tf.constant([[1.0, 1.0, 50.0], [0.5, 0.5, distance], [2.0, 2.0, 99.5]])
        assert both("clevr_distance", {"objects": {"pixel_coords": coords}}) == expected
    for k in range(40):
        number = tf.constant(k, tf.int64)
        # Bins of three and two.
        assert both("dsprites_orientation", {"label_orientation": number}) == (2 * k) // 5
        assert k > 31 or both("dsprites_location", {"label_x_position": number}) == k // 2


@pytest.mark.rows(
    ([0], [8.0], 0),
    ([1], [8.001], 1),
    ([2], [20.0], 1),
    ([0], [20.01], 2),
    ([0], [-1.0], 0),
    ([0, 1], [30.0, 5.0], 0),
    ([6], [3.0], 3),  # a tram is no vehicle
    ([3, 2], [1.0, 25.0], 2),  # nor is a pedestrian, however near
    ([], [], 3),
)
def test_kitti_distance(types, depths, expected):
    location = tf.reshape([[0.0, 0.0, depth] for depth in depths], (-1, 3))
    objects = {"type": tf.constant(types, tf.int64), "location": location}
    assert both("kitti_distance", {"objects": objects}) == expected


def _tfds(folder, image, pixels, label=None):
    kinds = tfds.features
    label = label or kinds.ClassLabel(num_classes=3)
    value = 2 if not label.shape else np.full([1] * len(label.shape), 2)
    examples = [(number, {"image": one, "label": value}) for number, one in enumerate(pixels)]
    rows = {"train": examples}
    features = kinds.FeaturesDict({"image": image, "label": label})
    tfds.dataset_builders.store_as_tfds_dataset("mine", "1.0.0", features, rows, data_dir=folder)
    return data.open("tfds:mine", "train", folder)


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_stored_as_an_array_is_read(channels, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 5, 7, channels)).astype(np.uint8)
    image = tfds.features.Tensor(shape=(5, 7, channels), dtype=np.uint8)
    split = _tfds(tmp_path, image, pixels)
    for index, expected in enumerate(pixels):
        found = split.read(tf.constant(index, tf.int64))["image"]
        color = split.preprocess("decode")(found, (0, 0))
        np.testing.assert_array_equal(color, np.broadcast_to(expected, (5, 7, 3)))
        gray = split.preprocess("decode(channels=1)")(found, (0, 0))
        expected = expected @ ([1.0] if channels == 1 else [0.2989, 0.587, 0.114])
        np.testing.assert_allclose(gray[..., 0], expected, atol=1)


@pytest.mark.rows(
    ("Image", {"shape": (20, 24, 1), "dtype": np.float32}, "Image.*float32"),
    ("Tensor", {"shape": (3, 20, 24), "dtype": np.uint8}, r"Tensor.*\(3, 20, 24\)"),
    ("Tensor", {"shape": (20, 24), "dtype": np.uint8}, r"Tensor.*\(20, 24\)"),
    ("Tensor", {"shape": (20, 24, 3), "dtype": np.float32}, "Tensor.*float32"),
    ("Tensor", {"shape": (20, 24, 3), "dtype": np.int64}, "Tensor.*int64"),
    ("Tensor", {"shape": (4, 4, 3), "dtype": np.uint8, "encoding": "zlib"}, "Tensor"),
    ("Video", {"shape": (2, 20, 24, 3)}, "Video"),
    ("Scalar", {"dtype": np.uint8}, "Scalar"),
)
def test_images_that_are_no_pixels_are_refused(kind, options, received, tmp_path):
    image = getattr(tfds.features, kind)(**options)
    dtype = options.get("dtype", np.uint8)
    pixels = np.full((1, *options.get("shape", ())), 0.5 if dtype == np.float32 else 3, dtype)
    message = f"Expected the feature `image` of mine/1.0.0 to be .*Received: {received}"
    with pytest.raises(ValueError, match=message) as error:
        _tfds(tmp_path, image, pixels)
    assert "\n" not in str(error.value)


def test_a_label_of_two_dimensions_is_refused(tmp_path):
    label = tfds.features.Sequence(tfds.features.Sequence(tfds.features.ClassLabel(num_classes=3)))
    with pytest.raises(ValueError, match=r"`label` \(a ClassLabel or a sequence of them\)"):
        _tfds(tmp_path, tfds.features.Image(), np.zeros((1, 4, 4, 3), np.uint8), label)
