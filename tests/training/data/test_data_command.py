"""The commands on data sets: what they list, check, index and prepare."""

import os
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
from etils import epath
from PIL import Image
from sklearn.datasets import load_digits

from keras_vit.training import data
from keras_vit.training.commands.data import main
from keras_vit.training.data import known_datasets, records, write_prepared_datasets
from keras_vit.training.errors import UsageError
from keras_vit.training.io import remote_stores
from tests.training.data.helpers import contents, error_line, ids, write_photos


def test_list_shows_every_row_and_what_is_prepared(data_dir, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["list", f"--data_dir={data_dir}"]) == 0
    output = capsys.readouterr().out
    for name in known_datasets.DATASETS:
        assert name in output
    (digits,) = (line for line in output.splitlines() if line.lstrip("│ ").startswith("digits "))
    assert "1.0.0" in digits and output.count("1.0.0") == 1


def test_check_reports_sizes_classes_and_decoding(data_dir, capsys):
    assert main(["check", "digits", f"--data_dir={data_dir}"]) == 0
    output = capsys.readouterr().out
    assert "train: 1,438 examples" in output
    assert "10 classes, 10 of them among the images decoded" in output
    assert "100 images decoded: all well" in output
    assert "1,697 images not looked at: --all decodes every one" in output


def test_every_image_is_decoded_and_an_empty_split_is_reported(tmp_path, capsys):
    write_photos(tmp_path, [f"test/{kind}/{number}.png" for kind in "ab" for number in range(60)])
    (tmp_path / "train").mkdir()
    found = sorted(tmp_path.glob("test/*/*"))
    for file in found[7], found[80]:
        file.write_bytes(b"no image")
    assert main(["check", f"folder:{tmp_path}", "--all"]) == 1
    output = capsys.readouterr().out
    assert "train: 0 examples" in output and "test: 120 examples" in output
    assert "problem: train is empty" in output
    assert "118 of 120 images decoded: see above" in output and "not looked at" not in output
    for file in found[7], found[80]:
        assert f"problem: test {file.relative_to(tmp_path)}" in output


@pytest.mark.parametrize(
    "error, status, advice",
    [
        (tf.errors.PermissionDeniedError(None, None, "403\nForbidden"), 2, "Check the name of the"),
        (tf.errors.UnavailableError(None, None, "no host"), 1, "again when the store answers"),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "tfds:x"],
        ["check", "digits"],
        ["index", "tfds:x"],
        ["check", "folder:{}/tfds"],
        ["prepare", "csv:{}/tfds/table.csv", "--as=x"],
    ],
)
def test_a_store_that_refuses_or_fails_is_one_line(
    ram, failing_store, monkeypatch, capsys, arguments, error, status, advice
):
    def refuse(*_, **__):
        raise error

    for name in ("exists", "isdir", "listdir", "open", "stat"):
        monkeypatch.setattr(failing_store, name, refuse, raising=False)
    bucket = ram()
    arguments = [each.format(bucket) for each in arguments]
    assert main([*arguments, f"--data_dir={bucket}/tfds"]) == status
    (line,) = (each for each in capsys.readouterr().err.splitlines() if "error:" in each)
    assert line.startswith(f"error: {bucket}/tfds") and advice in line


def test_an_index_is_written_beside_the_files_of_a_store(ram, capsys, monkeypatch):
    bucket = ram()
    expected = ids("digits", "train", bucket)
    assert main(["index", "digits", f"--data_dir={bucket}"]) == 0
    assert "index of 2 files of digits" in capsys.readouterr().out
    found = tf.io.gfile.glob(f"{bucket}/sklearn_digits/1.0.0/*.offsets.npy")
    assert len(found) == 2
    monkeypatch.setattr(records, "_scan", None)
    assert ids("digits", "train", bucket) == expected
    assert main(["check", "digits", f"--data_dir={bucket}"]) == 0
    assert main(["index", "folder:photos"]) == 2
    assert "does not exist" in error_line(capsys)


def test_prepare_fails_at_once_without_a_network(tmp_path, capsys, monkeypatch):
    def no_address(*_):
        raise OSError("no network")

    monkeypatch.setattr(write_prepared_datasets.socket, "getaddrinfo", no_address)
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert main(["prepare", "cifar10", f"--data_dir={tmp_path}"]) == 1
    assert "www.cs.toronto.edu cannot be reached" in capsys.readouterr().err
    assert main(["prepare", "vtab/resisc45", f"--data_dir={tmp_path}"]) == 1
    assert "extract NWPU-RESISC45.rar so that" in capsys.readouterr().err


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    folders = {"train/crow": 6, "train/owl": 6, "test/crow": 3, "test/owl": 3}
    kinds = ["jpg", "jpg", "png", "jpg", "jpg", "jpg"]
    write_photos(root, [f"{each}/{k}.{kinds[k]}" for each, n in folders.items() for k in range(n)])
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
    with remote_stores.synchronized(address) as copy:
        shutil.copytree(photos, copy, dirs_exist_ok=True)
    return address


def assert_same(name, photos, data_dir):
    for split in ("train", "test"):
        assert contents(name, split, data_dir) == contents(f"folder:{photos}", split)


def test_a_folder_becomes_a_set(photos, tmp_path, capsys):
    options = ["--as=birds", f"--data_dir={tmp_path}", "--num_shards=2"]
    assert main(["prepare", str(photos), *options]) == 0
    output = capsys.readouterr().out
    assert "Written as tfds:birds:1.0.0" in output and "18 images decoded: all well" in output
    assert len(list(tmp_path.glob("birds/1.0.0/*train*tfrecord*"))) == 2
    # Turned upright, as in the folder.
    assert_same("tfds:birds", photos, tmp_path)
    assert main(["prepare", f"folder:{photos}", *options]) == 2
    assert "is there already" in error_line(capsys)
    write_photos(tmp_path / "spaced", ["a/1.png", " b/1.png"])
    assert main(["prepare", str(tmp_path / "spaced"), "--as=b", options[1]]) == 2
    assert "without spaces around them" in error_line(capsys)


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


def test_options_of_beam_need_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UsageError, match="pip install apache-beam"):
        write_prepared_datasets.prepare("tfds:c4", beam_options=["--runner=X"])


@pytest.mark.long
def test_beam_writes_what_one_machine_writes(tmp_path, capsys):
    pytest.importorskip("apache_beam", reason="make test-cluster installs it")
    write_photos(tmp_path / "birds", [f"{n % 2}/{n}.jpg" for n in range(20)])
    beam = ["--beam=--runner=DirectRunner", "--beam=--direct_num_workers=2"]
    for folder, beam_options in (("here", []), ("beam", beam)):
        options = ["--as=birds", f"--data_dir={tmp_path / folder}", "--num_shards=3", *beam_options]
        assert main(["prepare", f"{tmp_path}/birds", *options]) == 0
        assert "20 images decoded: all well" in capsys.readouterr().out
    here, there = (os.listdir(tmp_path / place / "birds" / "1.0.0") for place in ("here", "beam"))
    assert {*here} == {*there} and len([name for name in there if "tfrecord" in name]) == 3
    expected = contents(f"folder:{tmp_path}/birds", "train")
    assert contents("tfds:birds", "train", tmp_path / "beam") == expected


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
