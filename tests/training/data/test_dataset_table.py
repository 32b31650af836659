import json

import pytest

from keras_vit.training import data
from keras_vit.training.data import dataset_table
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


def test_imagenets_test_set_is_validation():
    spec = dataset_table.row("imagenet2012")
    assert dataset_table.row("imagenet").ranges("test") == spec.ranges("validation")


def test_an_unknown_name_lists_the_known(tmp_path):
    with pytest.raises(
        ValueError, match=r"Unknown data set 'birds'. Expected folder:/path .* one of digits"
    ):
        dataset_table.row("birds")
    with pytest.raises(ValueError, match=r"'pet'. Did you mean pets\?"):
        dataset_table.row("pet")
    with pytest.raises(ValueError, match=r"Did you mean folder:/.*\? Expected folder:/path"):
        data.open_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cifar100", ["keras-vit data prepare cifar100 --data_dir=", "169 MB"]),
        ("imagenet2012", ["ILSVRC2012_img_train.tar", "downloads/manual"]),
        ("vtab/resisc45", ["NWPU-RESISC45", "prepare vtab/resisc45"]),
        ("imagenet21k", ["builder", "imagenet21k"]),
        ("tfds:my_set", ["prepare tfds:my_set"]),
    ],
)
def test_missing_data_says_at_once_how_to_get_it(name, words, tmp_path):
    with pytest.raises(NotPreparedError) as error:
        data.open(name, "train", tmp_path)
    for word in [*words, str(tmp_path)]:
        assert word in str(error.value)


DAMAGED = r"features\.json is damaged .* Prepare the data set"


@pytest.mark.parametrize(
    ("file_format", "features", "message"),
    [
        ("bagz", b"", r"1\.0\.0 holds bagz: prepare the data set again with"),
        ("tfrecord", b"\xff", DAMAGED),
        ("tfrecord", b'{"featuresDict": {"features": []}}', DAMAGED),
    ],
)
def test_what_cannot_be_read_is_named(file_format, features, message, tmp_path):
    folder = tmp_path / "my_set" / "1.0.0"
    folder.mkdir(parents=True)
    info = {"name": "my_set", "version": "1.0.0", "fileFormat": file_format}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_bytes(features)
    with pytest.raises(ValueError, match=message):
        data.open_dataset("tfds:my_set", tmp_path)
