import shutil

import numpy as np
from sklearn.datasets import load_digits

from keras_vit.training import data
from keras_vit.training.data import prepare


def test_images_keep_all_seventeen_levels(digits_dir):
    images = {
        example["image"].numpy().tobytes()
        for split in ("train", "test")
        for example in data.load_dataset(
            "digits", split, data_dir=digits_dir, preprocess="decode(channels=1)"
        )
    }
    original = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    assert images == {image.tobytes() for image in original}
    assert original.max() == 255


def test_both_splits_hold_every_class_in_proportion(digits_split):
    train, test = (digits_split(split).label_counts() for split in ("train", "test"))
    assert (train.sum(), test.sum()) == (1_438, 359)
    np.testing.assert_allclose(test / (test + train), 359 / 1797, atol=0.004)


def test_stratified_indices_take_the_largest_remainders():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    chosen = prepare.stratified_test_indices(labels, 9, seed=0)
    # Exact shares are 4.5, 2.7 and 1.8.
    assert np.bincount(labels[chosen]).tolist() == [4, 3, 2]
    assert len(set(chosen)) == 9


def test_a_preparation_that_loses_the_race_takes_the_winners_copy(tmp_path, monkeypatch):
    # An interrupted one is in the way of neither.
    (tmp_path / "sklearn_digits" / "1.0.0").mkdir(parents=True)
    rename = prepare.os.rename

    def lose(source, target):
        if target == tmp_path / "sklearn_digits" / "1.0.0":
            shutil.copytree(source, target, dirs_exist_ok=True)
        rename(source, target)

    monkeypatch.setattr(prepare.os, "rename", lose)
    target = prepare.prepare_digits(tmp_path)
    assert (target / "dataset_info.json").is_file()
    assert [path.name for path in target.parent.iterdir()] == ["1.0.0"]
    before = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    assert prepare.prepare_digits(tmp_path) == target
    assert {path: path.stat().st_mtime_ns for path in target.iterdir()} == before
