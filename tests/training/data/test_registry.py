import subprocess
import sys

import pytest

from training import data
from training.data import registry, vtab_tasks
from training.data.tfds_folder import NotPreparedError

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


def test_every_row_has_its_sizes_checked_somewhere():
    vtab_names = {f"vtab/{task.name}" for task in vtab_tasks.TASKS}
    assert set(registry.DATASETS) == {*FINE_TUNING, *vtab_names, "imagenet21k"}


@pytest.mark.parametrize("name", FINE_TUNING)
def test_sizes_of_the_fine_tuning_protocol(name):
    spec = registry.row(name)
    assert {split: spec.num_examples(split) for split in FINE_TUNING[name]} == FINE_TUNING[name]
    if spec.dev:
        # They share no example and make up `train`.
        sweep, dev = (spec.ranges(text) for text in spec.dev)
        assert (sweep[0].start, sweep[0].stop) == (0, dev[0].start)
        assert dev[0].stop == spec.sizes["train"]


def test_imagenets_test_set_is_validation():
    spec = registry.row("imagenet2012")
    assert registry.row("imagenet").ranges("test") == spec.ranges("validation")


def test_an_unknown_name_lists_the_known(tmp_path):
    with pytest.raises(
        ValueError, match=r"Unknown data set 'cifar'. Expected folder:/path .* one of digits"
    ):
        registry.row("cifar")
    with pytest.raises(ValueError, match=r"Did you mean folder:/.*\? Expected folder:/path"):
        data.open_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cifar100", ["python -m training data prepare cifar100 --data_dir=", "169 MB"]),
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


def test_opening_needs_no_tensorflow(digits_dir, tmp_path):
    (tmp_path / "crow").mkdir()
    (tmp_path / "crow" / "1.png").touch()
    opened = f"'digits', 'train', {str(digits_dir)!r}", f"'folder:{tmp_path}', 'train[:1]'"
    code = "".join(f"training.data.open({one}); " for one in opened)
    code = f"import sys, training.data; {code}assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"featuresDict": 3}', b'{"featuresDict": {"features": []}}']
)
def test_damaged_features_are_named(content, tmp_path):
    folder = tmp_path / "my_set" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text('{"name": "my_set", "version": "1.0.0"}')
    (folder / "features.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"features\.json is damaged .* Prepare the data set"):
        data.open_dataset("tfds:my_set", tmp_path)
