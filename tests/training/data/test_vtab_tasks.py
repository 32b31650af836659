import dataclasses

import pytest

from keras_vit.training.data import dataset_table
from keras_vit.training.data.splits import Range

# task -> (val200, test, classes): the absolute ranges of the reference implementation.
EXPECTED = {
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


@pytest.mark.parametrize("name", EXPECTED)
def test_splits_of_vtab_1k(name):
    spec = dataset_table.row(f"vtab/{name}")
    val200, test, classes = EXPECTED[name]
    assert spec.ranges("train800") == [Range("train", 0, 800)]
    assert spec.ranges("val200") == [val200]
    assert spec.ranges("train800val200") == [Range("train", 0, 800), val200]
    assert spec.ranges("test") == [test]
    assert spec.num_classes == classes
    assert spec.num_examples("train800val200") == 1_000
    if spec.num_examples("trainval") < 100_000:
        assert not members(spec, "trainval") & members(spec, "test")
        assert members(spec, "train800val200") <= members(spec, "trainval")


def test_caltechs_later_builds_have_three_images_less():
    spec = dataclasses.replace(
        dataset_table.row("vtab/caltech101"), sizes={"train": 3_057, "test": 6_084}
    )
    assert spec.ranges("val200") == [Range("train", 2751, 2951)]


def test_no_flip_where_it_changes_the_label():
    assert {task.name for task in dataset_table.TASKS if not task.flip} == {
        "svhn",
        *(task.name for task in dataset_table.TASKS if task.group == "structured"),
    }
