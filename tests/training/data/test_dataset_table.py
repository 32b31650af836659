import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.data import dataset_table, vtab_labels
from keras_vit.training.data.splits import Range
from keras_vit.training.data.tfds_folder import NotPreparedError

# (split text, examples) of the paper's fine-tuning protocol, appendix B.1.1.
FINE_TUNING = {
    "imagenet2012": {"train": 1_281_167, "sweep": 1_268_355, "dev": 12_812, "test": 50_000},
    "cifar10": {"train": 50_000, "sweep": 49_000, "dev": 1_000, "test": 10_000},
    "cifar100": {"train": 50_000, "sweep": 49_000, "dev": 1_000, "test": 10_000},
    "oxford_iiit_pet": {"train": 3_680, "sweep": 3_312, "dev": 368, "test": 3_669},
    "oxford_flowers102": {"train": 1_020, "sweep": 918, "dev": 102, "test": 6_149},
    "imagenet2012_real": {"test": 50_000},
    "imagenet_v2": {"test": 10_000},
    "digits": {"train": 1_438, "sweep": 1_294, "dev": 144, "test": 359},
}


@pytest.mark.parametrize("name", FINE_TUNING)
def test_sizes_of_the_fine_tuning_protocol(name):
    spec = dataset_table.row(name)
    assert {split: spec.num_examples(split) for split in FINE_TUNING[name]} == FINE_TUNING[name]
    if spec.dev:
        # They share no example and make up `train`.
        sweep, dev = (spec.ranges(text) for text in spec.dev)
        assert (sweep[0].start, sweep[0].stop) == (0, dev[0].start)
        assert dev[0].stop == spec.sizes["train"]


# task -> (val200, test, classes): the absolute ranges of the reference implementation.
VTAB = {
    "caltech101": (Range("train", 2754, 2954), Range("test", 0, 6084), 102),
    "cifar100": (Range("train", 45000, 45200), Range("test", 0, 10000), 100),
    "dtd": (Range("validation", 0, 200), Range("test", 0, 1880), 47),
    "oxford_flowers102": (Range("validation", 0, 200), Range("test", 0, 6149), 102),
    "oxford_iiit_pet": (Range("train", 2944, 3144), Range("test", 0, 3669), 37),
    "sun397": (Range("validation", 0, 200), Range("test", 0, 21750), 397),
    "svhn": (Range("train", 65931, 66131), Range("test", 0, 26032), 10),
    "patch_camelyon": (Range("validation", 0, 200), Range("test", 0, 32768), 2),
    "eurosat": (Range("train", 16200, 16400), Range("train", 21600, 27000), 10),
    "resisc45": (Range("train", 18900, 19100), Range("train", 25200, 31500), 45),
    "diabetic_retinopathy": (Range("validation", 0, 200), Range("test", 0, 42670), 5),
    "clevr_count": (Range("train", 63000, 63200), Range("validation", 0, 15000), 8),
    "clevr_distance": (Range("train", 63000, 63200), Range("validation", 0, 15000), 6),
    "dmlab": (Range("validation", 0, 200), Range("test", 0, 22735), 6),
    "dsprites_location": (Range("train", 589824, 590024), Range("train", 663552, 737280), 16),
    "dsprites_orientation": (Range("train", 589824, 590024), Range("train", 663552, 737280), 16),
    "kitti_distance": (Range("validation", 0, 200), Range("test", 0, 711), 4),
    "smallnorb_azimuth": (Range("test", 0, 200), Range("test", 12150, 24300), 18),
    "smallnorb_elevation": (Range("test", 0, 200), Range("test", 12150, 24300), 9),
}


def members(spec, split):
    return {(part.split, k) for part in spec.ranges(split) for k in range(part.start, part.stop)}


@pytest.mark.parametrize("name", VTAB)
def test_splits_of_vtab_1k(name):
    spec = dataset_table.row(f"vtab/{name}")
    val200, test, classes = VTAB[name]
    assert spec.ranges("train800") == [Range("train", 0, 800)]
    assert spec.ranges("val200") == [val200]
    assert spec.ranges("train800val200") == [Range("train", 0, 800), val200]
    assert spec.ranges("test") == [test]
    assert spec.num_classes == classes
    assert spec.num_examples("train800val200") == 1_000
    if spec.num_examples("trainval") < 100_000:
        assert not members(spec, "trainval") & members(spec, "test")
        assert members(spec, "train800val200") <= members(spec, "trainval")


def test_caltechs_later_builds_have_three_images_less(resize_row):
    resize_row("vtab/caltech101", {"train": 3_057, "test": 6_084})
    spec = dataset_table.row("vtab/caltech101")
    assert spec.ranges("val200") == [Range("train", 2751, 2951)]


def test_no_flip_where_it_changes_the_label():
    structured = [*VTAB][-8:]
    assert {task.name for task in dataset_table.TASKS if not task.flip} == {"svhn", *structured}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("birds", r"^Expected folder:/path .* one of digits.* data set 'birds'"),
        ("pet", r"^Did you mean pets\? .* data set 'pet'"),
        ("/photos", r"^Did you mean folder:/photos\? Expected folder:/path"),
        ("cifar100", r"keras-vit data prepare cifar100 --data_dir={folder}.* 169 MB"),
        ("imagenet2012", r"ILSVRC2012_img_train\.tar.* {folder}/downloads/manual"),
        ("imagenet21k", r"{folder}.* builder .*imagenet21k"),
        ("tfds:mnist", r"prepare tfds:mnist --data_dir={folder}"),
    ],
)
def test_what_is_unknown_or_not_prepared_says_how_to_get_it(name, message, tmp_path):
    with pytest.raises(ValueError, match=f"(?s){message.format(folder=tmp_path)}"):
        data.open_dataset(name, tmp_path)


def test_an_interrupted_preparation_is_explained(tmp_path):
    (tmp_path / "cifar10" / "3.0.2").mkdir(parents=True)
    with pytest.raises(NotPreparedError, match=r"no dataset_info\.json.*Delete the folder"):
        data.open("cifar10", "train", tmp_path)


def both(rule, example):
    """Runs a rule eagerly and inside a graph."""
    classify = vtab_labels.rule(rule).classify
    eager = int(classify(example))
    assert int(tf.function(lambda one: classify(one))(example)) == eager
    return eager


def test_clevr():
    for objects, expected in ((3, 0), (10, 7)):
        example = {"objects": {"size": tf.zeros((objects,), tf.int64)}}
        assert both("clevr_count", example) == expected
    nearest = (7.9, 8, 8.0001, 8.5, 8.5001, 9, 9.5, 9.6, 10, 10.01, 99)
    for distance, expected in zip(nearest, (0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 5), strict=True):
        coords = tf.constant([[1.0, 1.0, 50.0], [0.5, 0.5, distance], [2.0, 2.0, 99.5]])
        assert both("clevr_distance", {"objects": {"pixel_coords": coords}}) == expected


@pytest.mark.parametrize(
    ("types", "depths", "expected"),
    [
        ([0], [8.0], 0),
        ([1], [8.001], 1),
        ([2], [20.0], 1),
        ([0], [20.01], 2),
        ([0], [-1.0], 0),
        ([0, 1], [30.0, 5.0], 0),
        ([6], [3.0], 3),  # a tram is no vehicle
        ([3, 2], [1.0, 25.0], 2),  # nor is a pedestrian, however near
        ([], [], 3),
    ],
)
def test_kitti_distance(types, depths, expected):
    location = np.zeros((len(types), 3), np.float32)
    location[:, 2] = depths
    objects = {"type": tf.constant(types, tf.int64), "location": tf.constant(location)}
    assert both("kitti_distance", {"objects": objects}) == expected


@pytest.mark.parametrize(
    ("rule", "key", "classes"),
    [
        ("dsprites_location", "label_x_position", [k // 2 for k in range(32)]),
        # Bins of three and two.
        ("dsprites_orientation", "label_orientation", [(2 * k) // 5 for k in range(40)]),
    ],
)
def test_dsprites(rule, key, classes):
    found = [both(rule, {key: tf.constant(k, tf.int64)}) for k in range(len(classes))]
    assert found == classes
