import os
import re
import shutil
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from etils import epath
from PIL import Image
from sklearn.datasets import load_digits

from keras_vit.__main__ import main
from keras_vit.training import data
from keras_vit.training.data import records
from keras_vit.training.data.sets import known_datasets, prepare_datasets
from keras_vit.training.data.sets.splits import HELD_OUT_FIFTH
from keras_vit.training.errors import UsageError
from keras_vit.training.io import remote_stores
from tests.odd_photos import oriented
from tests.training.data.helpers import contents, error_line, ids, write_photos

REFUSED = tf.errors.PermissionDeniedError(None, None, "403\nForbidden"), 2, "Check the name of the"
FAILED = tf.errors.UnavailableError(None, None, "no host"), 1, "again when the store answers"
TABLE = "prepare csv:{}/tfds/table.csv --as=x"


def test_list_and_check_say_what_there_is(data_dir, tmp_path, capsys, monkeypatch, printed):
    monkeypatch.setenv("COLUMNS", "100")
    output = printed("data", "list", f"--data_dir={data_dir}")
    for name in known_datasets.DATASETS:
        assert name in output
    (digits,) = (line for line in output.splitlines() if line.lstrip("│ ").startswith("digits "))
    assert "1.0.0" in digits and output.count("1.0.0") == 1
    output = printed("data", "check", "digits", f"--data_dir={data_dir}")
    assert "train: 1,438 examples" in output
    assert "10 classes, 10 of them among the images decoded" in output
    assert "100 images decoded: all well" in output
    assert "1,697 images not looked at: --all decodes every one" in output

    write_photos(tmp_path, [f"test/{kind}/{number}.png" for kind in "ab" for number in range(60)])
    (tmp_path / "train").mkdir()
    damaged = "a/7.png", "b/59.png"
    for name in damaged:
        (tmp_path / "test" / name).write_bytes(b"no image")
    assert main(["data", "check", f"folder:{tmp_path}", "--all"]) == 1
    output = capsys.readouterr().out
    assert "train: 0 examples" in output and "test: 120 examples" in output
    assert "118 of 120 images decoded: see above" in output and "not looked at" not in output
    for problem in ("train is empty", *(f"test test/{name}" for name in damaged)):
        assert f"problem: {problem}" in output


def test_check_names_photos_whose_jpeg_data_is_damaged(tmp_path, printed):
    write_photos(tmp_path, [f"{'ab'[number % 2]}/{number}.jpg" for number in range(6)])
    content = (tmp_path / "b/3.jpg").read_bytes()
    (tmp_path / "b/3.jpg").write_bytes(content[:-80] + b"\0\xff\xd0" + content[-80:])
    output = printed("data", "check", f"folder:{tmp_path}", status=1)
    problem = "train b/3.jpg: it is read in part: Corrupt JPEG data: premature end of"
    assert f"  problem: {problem}" in output and output.count("problem") == 1
    assert "6 images decoded: see above" in output


def test_check_counts_the_photos_of_each_class_and_those_held_out(tmp_path, printed):
    rows = [f"{kind}/{k}.png" for kind, count in (("ant", 10), ("bee", 15)) for k in range(count)]
    write_photos(tmp_path / "whole", rows)
    write_photos(tmp_path / "split" / "test", rows)
    write_photos(tmp_path / "split" / "train", rows[8:12])
    for folder, expected in (
        ("whole", [["class", *HELD_OUT_FIFTH], ["ant", "8", "2"], ["bee", "12", "3"]]),
        ("split", [["class", "test", "train"], ["ant", "10", "2"], ["bee", "15", "2"]]),
    ):
        lines = printed("data", "check", f"folder:{tmp_path / folder}").splitlines()
        found = [[cell.strip() for cell in re.split("[│┃]", line.strip("│┃ "))] for line in lines]
        assert [row for row in found if len(row) == 3] == expected


def test_check_names_held_out_photos_that_nearly_train(tmp_path, printed):
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 4)):
        names = [f"{kind}/{number}.png" for kind in "ab" for number in range(count)]
        tiles = lambda _: rng.integers(0, 255, (8, 6, 3)).repeat(5, 0).repeat(5, 1)  # noqa: E731
        write_photos(tmp_path / split, names, tiles)
    # Smaller, darker and in another format.
    photo = Image.open(tmp_path / "train/b/3.png").resize((24, 32)).point(lambda value: value // 2)
    photo.save(tmp_path / "test/a/9.jpg", quality=90)
    assert "problem" not in printed("data", "check", f"folder:{tmp_path}")
    output = printed("data", "check", f"folder:{tmp_path}", "--duplicates", status=1)
    problem = "test test/a/9.jpg looks like train/b/3.png of train, which trains"
    assert "9 held-out images compared with 12 of train: 1 look the same" in output
    assert f"  problem: {problem}\n" in output and output.count("problem") == 1


@pytest.mark.parametrize("kind", ["png", "tiff", "gray.png"])
def test_images_of_12_bits_in_16_are_named(kind, tmp_path, capsys):
    (tmp_path / "a").mkdir()
    shape = (4, 5) if kind in ("tiff", "gray.png") else (4, 5, 3)
    for number, largest in enumerate((4095, 65535)):
        pixels = np.full(shape, largest, np.uint16)
        if kind == "tiff":
            Image.fromarray(pixels).save(tmp_path / "a/1.tiff")
            content = (tmp_path / "a/1.tiff").read_bytes()
        else:
            content = tf.io.encode_png(pixels.reshape(4, 5, -1)).numpy()
        (tmp_path / f"a/{number}.{kind.split('.')[-1]}").write_bytes(content)
    assert main(["data", "check", f"folder:{tmp_path}"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "1 images of 16 bits, such as train a/0." in output and "by 16 for 12 bits" in output


@pytest.mark.parametrize("error, status, advice", [REFUSED, FAILED])
@pytest.mark.rows("check tfds:x", "check digits", "index tfds:x", "check folder:{}/tfds", TABLE)
def test_a_store_fails(words, ram, failing_store, monkeypatch, capsys, error, status, advice):
    for name in ("exists", "isdir", "listdir", "open", "stat"):
        monkeypatch.setattr(failing_store, name, mock.Mock(side_effect=error), raising=False)
    bucket = ram()
    assert main(["data", *words.format(bucket).split(), f"--data_dir={bucket}/tfds"]) == status
    (line,) = (each for each in capsys.readouterr().err.splitlines() if "error:" in each)
    assert line.startswith(f"error: {bucket}/tfds") and advice in line


def test_an_index_is_written_beside_the_files_of_a_store(ram, capsys, monkeypatch):
    bucket = ram()
    expected = ids("digits", "train", bucket)
    assert main(["data", "index", "digits", f"--data_dir={bucket}"]) == 0
    assert "index of 2 files of digits" in capsys.readouterr().out
    assert len(tf.io.gfile.glob(f"{bucket}/sklearn_digits/1.0.0/*.offsets.npy")) == 2
    monkeypatch.setattr(records, "_scan", None)
    assert ids("digits", "train", bucket) == expected
    assert main(["data", "check", "digits", f"--data_dir={bucket}"]) == 0
    assert main(["data", "index", "folder:photos"]) == 2
    assert "does not exist" in error_line(capsys)


def test_prepare_fails_at_once_without_a_network_or_beam(tmp_path, capsys, monkeypatch):
    no_address = mock.Mock(side_effect=OSError("no network"))
    monkeypatch.setattr(prepare_datasets.socket, "getaddrinfo", no_address)
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    unreached = ("cifar10", "www.cs.toronto.edu cannot be reached")
    for name, message in (unreached, ("vtab/resisc45", "extract NWPU-RESISC45.rar so that")):
        assert main(["data", "prepare", name, f"--data_dir={tmp_path}"]) == 1
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UsageError, match="pip install apache-beam"):
        prepare_datasets.prepare("tfds:c4", beam_options=["--runner=X"])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    folders = {"train/crow": 6, "train/owl": 6, "test/crow": 3, "test/owl": 3}
    kinds = ["jpg", "jpg", "png", "jpg", "jpg", "jpg"]
    write_photos(root, [f"{each}/{k}.{kinds[k]}" for each, n in folders.items() for k in range(n)])
    for path in root.glob("*/*/1.jpg"):
        path.write_bytes(oriented(6))
    return root


@pytest.fixture
def stored_photos(photos, ram):
    address = epath.Path(ram()) / "photos"
    with remote_stores.copied(address, "change") as copy:
        shutil.copytree(photos, copy, dirs_exist_ok=True)
    return address


def assert_same(name, photos, data_dir):
    for split in ("train", "test"):
        assert contents(name, split, data_dir) == contents(f"folder:{photos}", split)


def test_a_folder_becomes_a_set(photos, stored_photos, tmp_path, capsys, printed):
    options = ["--as=birds", f"--data_dir={tmp_path}", "--num_shards=2"]
    output = printed("data", "prepare", photos, *options)
    assert "Written as tfds:birds:1.0.0" in output and "18 images decoded: all well" in output
    assert len(list(tmp_path.glob("birds/1.0.0/*train*tfrecord*"))) == 2
    assert_same("tfds:birds", photos, tmp_path)  # Turned upright, as in the folder.
    write_photos(tmp_path / "spaced", ["a/1.png", " b/1.png"])
    (tmp_path / "t.csv").write_text(f"path,label\n{stored_photos}/none.jpg,crow\n")
    for source, name, message in (
        (f"folder:{photos}", "birds", "is there already"),
        (tmp_path / "spaced", "b", "without spaces around them"),
        (f"csv:{tmp_path}/t.csv", "x", f"{stored_photos}/none.jpg"),
        (f"csv:{stored_photos}/t.csv", "x", f"{stored_photos}/t.csv"),
        (f"csv:{tmp_path}/t.csv", "My Birds", "Expected a name of small letters"),
        (f"csv:{tmp_path}/t.csv", "", "Expected a name of small letters"),
    ):
        assert main(["data", "prepare", str(source), f"--as={name}", options[1]]) == 2
        assert message in error_line(capsys)


@pytest.mark.parametrize("table_is_stored", [False, True])
def test_a_table_becomes_a_set_in_a_store(table_is_stored, photos, stored_photos, tmp_path, ram):
    folder, prefix = (stored_photos, "") if table_is_stored else (tmp_path, f"{stored_photos}/")
    parts = [path.relative_to(photos).parts for path in sorted(photos.glob("*/*/*"))]
    rows = [f"{prefix}{split}/{label}/{name},{label},{split}" for split, label, name in parts]
    bucket = ram()
    (folder / "table.csv").write_text("\n".join(["path,label,split", *rows]) + "\n")
    sets = [(f"csv:{folder}/table.csv", "t"), (f"folder:{folder}", "birds")]
    for source, name in sets if table_is_stored else sets[:1]:
        assert main(["data", "prepare", source, f"--as={name}", f"--data_dir={bucket}"]) == 0
        assert_same(f"tfds:{name}", photos, bucket)


@pytest.mark.long
def test_beam_writes_what_one_machine_writes(tmp_path, capsys):
    pytest.importorskip("apache_beam", reason="make test-cluster installs it")
    write_photos(tmp_path / "birds", [f"{n % 2}/{n}.jpg" for n in range(20)])
    beam = ["--beam=--runner=DirectRunner", "--beam=--direct_num_workers=2"]
    options = ["prepare", f"{tmp_path}/birds", "--as=birds", "--num_shards=3"]
    for folder, beam_options in (("here", []), ("beam", beam)):
        assert main(["data", *options, f"--data_dir={tmp_path / folder}", *beam_options]) == 0
        assert "20 images decoded: all well" in capsys.readouterr().out
    here, there = (os.listdir(tmp_path / place / "birds" / "1.0.0") for place in ("here", "beam"))
    assert {*here} == {*there} and len([name for name in there if "tfrecord" in name]) == 3
    expected = contents(f"folder:{tmp_path}/birds", "train")
    assert contents("tfds:birds", "train", tmp_path / "beam") == expected


def test_the_digits_keep_all_seventeen_levels_and_every_class_in_proportion(data_dir):
    settings = {"data_dir": data_dir, "preprocess": "decode(channels=1)"}
    sets = (data.load_dataset("digits", split, **settings) for split in ("train", "test"))
    train, test = ([*dataset.as_numpy_iterator()] for dataset in sets)
    original = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    images = {one["image"].tobytes() for one in train + test}
    assert images == {image.tobytes() for image in original} and original.max() == 255
    # Of the shares of 359 images, those with the largest remainders are rounded up.
    counts = np.bincount([one["label"] for one in test]).tolist()
    assert counts == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36] and len(train) == 1_438


def test_a_preparation_that_loses_the_race_takes_the_winners_copy(tmp_path, monkeypatch):
    # An interrupted one is in the way of neither.
    target, rename = tmp_path / "sklearn_digits" / "1.0.0", os.rename
    target.mkdir(parents=True)

    def lose(source, where):
        if where == target:
            shutil.copytree(source, where, dirs_exist_ok=True)
        rename(source, where)

    monkeypatch.setattr(os, "rename", lose)
    assert data.open("digits", "test", tmp_path).dataset.place == target
    assert [path.name for path in target.parent.iterdir()] == ["1.0.0"]
    assert data.open("digits", "train[:1]", tmp_path).num_examples == 1
