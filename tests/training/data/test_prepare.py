"""A folder or a table of photos, and the digits, as sharded sets: the same images and labels."""

import importlib.util
import os
import shutil

import numpy as np
import pytest
from etils import epath
from PIL import Image
from sklearn.datasets import load_digits

from keras_vit.training import data
from keras_vit.training.commands.data import main
from keras_vit.training.data import prepare
from keras_vit.training.errors import UsageError
from keras_vit.training.io import stores
from tests.training.data.helpers import contents, error_line, write_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    names = [
        f"{split}/{label}/{number}.{'png' if number == 2 else 'jpg'}"
        for split, count in (("train", 6), ("test", 3))
        for label in ("crow", "owl")
        for number in range(count)
    ]
    write_photos(root, names)
    for path in root.glob("*/*/1.jpg"):
        # On its side, as its EXIF says.
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.open(path).copy().save(path, exif=exif)
    return root


@pytest.fixture
def stored_photos(photos, ram):
    """The address of a copy of the photos in a store."""
    address = epath.Path(ram()) / "photos"
    with stores.synchronized(address) as copy:
        shutil.copytree(photos, copy, dirs_exist_ok=True)
    return address


def assert_same(name, photos, data_dir):
    for split in ("train", "test"):
        assert contents(name, split, data_dir) == contents(f"folder:{photos}", split)


def test_a_folder_becomes_a_set(photos, tmp_path, capsys):
    options = ["--as=birds", f"--data_dir={tmp_path}", "--num_shards=2"]
    assert main(["prepare", str(photos), *options]) == 0
    output = capsys.readouterr().out
    assert "Written as tfds:birds:1.0.0" in output
    assert "18 images decoded: all well" in output
    assert len(list(tmp_path.glob("birds/1.0.0/*train*tfrecord*"))) == 2
    # Turned upright, as in the folder.
    assert_same("tfds:birds", photos, tmp_path)
    assert main(["prepare", f"folder:{photos}", *options]) == 2
    assert "is there already" in error_line(capsys)


@pytest.mark.parametrize("table_is_stored", [False, True])
def test_a_table_becomes_a_set_in_a_store(table_is_stored, photos, stored_photos, tmp_path, ram):
    folder, prefix = (stored_photos, "") if table_is_stored else (tmp_path, f"{stored_photos}/")
    parts = [path.relative_to(photos).parts for path in sorted(photos.glob("*/*/*"))]
    rows = [f"{prefix}{split}/{label}/{name},{label},{split}" for split, label, name in parts]
    bucket = ram()
    (folder / "table.csv").write_text("\n".join(["path,label,split", *rows]) + "\n")
    assert main(["prepare", f"csv:{folder}/table.csv", "--as=t", f"--data_dir={bucket}"]) == 0
    assert_same("tfds:t", photos, bucket)
    if table_is_stored:
        assert main(["prepare", f"folder:{folder}", "--as=birds", f"--data_dir={bucket}"]) == 0
        assert_same("tfds:birds", photos, bucket)


def test_what_cannot_be_prepared_is_one_line(stored_photos, tmp_path, capsys):
    (tmp_path / "t.csv").write_text(f"path,label\n{stored_photos}/none.jpg,crow\n")
    for folder, name, word in (
        (tmp_path, "--as=x", f"{stored_photos}/none.jpg"),
        (stored_photos, "--as=x", f"{stored_photos}/t.csv"),
        (tmp_path, "--as=My Birds", "Expected a name of small letters"),
        (tmp_path, "--as=", "Expected a name of small letters"),
    ):
        assert main(["prepare", f"csv:{folder}/t.csv", name, f"--data_dir={tmp_path}"]) == 2
        assert word in error_line(capsys)


@pytest.mark.skipif(importlib.util.find_spec("apache_beam") is not None, reason="it is there")
def test_options_of_beam_need_it():
    with pytest.raises(UsageError, match="pip install apache-beam"):
        prepare.prepare("tfds:c4", beam_options=["--runner=X"])


def test_the_digits_keep_all_seventeen_levels_and_every_class_in_proportion(data_dir):
    images, counts = set(), {}
    for split in ("train", "test"):
        settings = {"data_dir": data_dir, "preprocess": "decode(channels=1)"}
        examples = list(data.load_dataset("digits", split, **settings).as_numpy_iterator())
        images |= {one["image"].tobytes() for one in examples}
        counts[split] = np.bincount([one["label"] for one in examples])
    original = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    assert images == {image.tobytes() for image in original} and original.max() == 255
    # Of the shares of 359 images, those with the largest remainders are rounded up.
    assert counts["test"].tolist() == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]
    assert counts["train"].sum() == 1_438


def test_a_preparation_that_loses_the_race_takes_the_winners_copy(tmp_path, monkeypatch):
    # An interrupted one is in the way of neither.
    target = tmp_path / "sklearn_digits" / "1.0.0"
    target.mkdir(parents=True)
    rename = os.rename

    def lose(source, where):
        if where == target:
            shutil.copytree(source, where, dirs_exist_ok=True)
        rename(source, where)

    monkeypatch.setattr(os, "rename", lose)
    assert data.open("digits", "test", tmp_path).dataset.place == target
    assert [path.name for path in target.parent.iterdir()] == ["1.0.0"]
    assert data.open("digits", "train[:1]", tmp_path).num_examples == 1
