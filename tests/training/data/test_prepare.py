"""A folder or a table of photos as a sharded data set: the same photos, the same labels."""

import importlib.util

import pytest
from etils import epath
from PIL import Image

from keras_vit.training.commands.data import main
from keras_vit.training.data import prepare
from keras_vit.training.errors import UsageError
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


@pytest.fixture
def stored_photos(photos, ram):
    """The address of a copy of the photos in a store."""
    address = epath.Path(ram()) / "photos"
    for path in photos.glob("*/*/*"):
        target = address / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return address


@pytest.mark.parametrize("of_table, of_photos", [("local", ""), ("local", "ram"), ("ram", "")])
def test_a_table_becomes_a_set_in_a_store(
    of_table, of_photos, photos, stored_photos, tmp_path, ram
):
    rows = [
        f"{stored_photos / name if of_photos else name},{path.parent.name},{path.parts[-3]}"
        for path in sorted(photos.glob("*/*/*"))
        for name in [path.relative_to(photos)]
    ]
    folder = {"local": tmp_path if of_photos else photos, "ram": stored_photos}[of_table]
    table, bucket = folder / "table.csv", ram()
    table.write_text("path,label,split\n" + "\n".join(rows) + "\n")
    assert main(["prepare", f"csv:{table}", "--as=table", f"--data_dir={bucket}"]) == 0
    assert_same("tfds:table", photos, bucket)
    if of_table == "ram":
        assert main(["prepare", f"folder:{folder}", "--as=birds", f"--data_dir={bucket}"]) == 0
        assert_same("tfds:birds", photos, bucket)


def test_what_a_store_does_not_have_is_named(stored_photos, tmp_path, capsys):
    (tmp_path / "t.csv").write_text(f"path,label\n{stored_photos}/none.jpg,crow\n")
    for source in (f"csv:{tmp_path}/t.csv", f"csv:{stored_photos}/t.csv"):
        assert main(["prepare", source, "--as=x", f"--data_dir={tmp_path}"]) == 2
        assert str(stored_photos) in error_line(capsys)


def test_a_name_that_cannot_be_one_is_refused(photos, tmp_path, capsys):
    for options in (["--as=My Birds"], []):
        assert main(["prepare", f"csv:{photos}/t.csv", *options, f"--data_dir={tmp_path}"]) == 2
        assert "Expected a name of small letters" in error_line(capsys)


@pytest.mark.skipif(importlib.util.find_spec("apache_beam") is not None, reason="it is there")
def test_options_of_beam_need_it():
    with pytest.raises(UsageError, match="pip install apache-beam"):
        prepare.prepare("tfds:c4", beam_options=["--runner=X"])


def test_files_to_get_by_hand_are_named(tmp_path, capsys):
    assert main(["prepare", "vtab/resisc45", f"--data_dir={tmp_path}"]) == 1
    assert "extract NWPU-RESISC45.rar so that" in capsys.readouterr().err
