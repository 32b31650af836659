"""A path is of this machine or of a store, or refused before any work; images are found by name."""

import os
import pathlib

import pytest
from etils import epath

from keras_vit.export.__main__ import main as export_main
from keras_vit.training.commands import train, vtab
from keras_vit.training.errors import UsageError
from keras_vit.training.io import image_listing
from keras_vit.training.io.image_listing import list_images
from keras_vit.training.io.paths import any_path, is_remote, local_path, read_lines
from tests.training.data.helpers import write_photos

UNKNOWN = ["memory://run", "http://host/run", "file://host/run"]
LOCAL = {
    "runs/a": "runs/a",
    "~/x": "{home}/x",
    "file:///data/a%20b": "/data/a b",
    "file://localhost/data": "/data",
    "C:/runs": "C:/runs",
    "a:b": "a:b",
    "gs:": "gs:",
    pathlib.Path("runs"): "runs",
}


def test_paths_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, path in LOCAL.items():
        assert not is_remote(name)
        assert local_path(name) == any_path(name) == pathlib.Path(path.format(home=tmp_path))
    stores = "gs://b/run", "s3://b/run", pathlib.Path("gs://b/run")
    for name in ("", *UNKNOWN, *stores, "~nobody-of-this/x", tmp_path / "\udcff"):
        with pytest.raises(UsageError, match="Expected a path"):
            local_path(name)


def test_paths_of_stores():
    assert is_remote("gs://bucket/run") and isinstance(any_path("gs://bucket/run"), epath.Path)
    assert str(any_path("s3://b/run") / "x") == "s3://b/run/x"
    for unknown in UNKNOWN[:2]:
        with pytest.raises(UsageError, match=f"of gs://, s3:// or .* Received: {unknown}"):
            any_path(unknown)


@pytest.mark.parametrize(
    "main, arguments",
    [
        (train.main, ["--config=quickstart", "--workdir"]),
        (vtab.main, ["runs/none", "--workdir"]),
        (export_main, ["npz", "run", "--output"]),
    ],
)
def test_commands_refuse_before_any_work(main, arguments, capsys):
    before = set(pathlib.Path.cwd().iterdir())
    *others, option = arguments
    assert main([*others, f"{option}=memory://run"]) == 2
    assert "file system. Received: memory://run" in capsys.readouterr().err
    assert set(pathlib.Path.cwd().iterdir()) == before


def test_lines_of_text(tmp_path, ram):
    for folder in (tmp_path, epath.Path(ram())):
        (folder / "names.txt").write_bytes(" crow\r\n\n  große Meise \n".encode())
        assert read_lines(folder / "names.txt") == ["crow", "große Meise"]
        (folder / "names.txt").write_bytes("Häher".encode("latin-1"))
        with pytest.raises(ValueError, match=r"a text in UTF-8\. Received: .*names\.txt \("):
            read_lines(folder / "names.txt")
    with pytest.raises(UsageError, match=r"/none\.txt cannot be read: .*Check the name"):
        read_lines(folder / "none.txt")


@pytest.fixture
def folder(tmp_path):
    """Two images in a folder and one below it, among files that are none."""
    write_photos(tmp_path, ["b.png", "a.PNG", "deep/c.png"])
    (tmp_path / "._b.png").write_bytes(b"what macOS leaves beside a file")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_folders_are_searched_and_what_they_leave_out_is_named(folder, caplog, monkeypatch):
    monkeypatch.setattr(image_listing, "EXTENSIONS", (".png",))
    for number in range(12):
        (folder / f"{number}.heic").write_bytes(b"of a phone")
    (folder / "README").touch()
    found = list_images([folder / "notes.txt", folder])
    assert found == [folder / name for name in ("notes.txt", "a.PNG", "b.png", "deep/c.png")]
    assert f"Left out of {folder}: README (no extension); 0.heic, 1.heic, 10.heic" in caplog.text
    named = ", 7.heic and 2 more (.heic is not read: pip install 'keras-vit-16x16[heic]')"
    assert f"{named}; notes.txt (.txt is not read)" in caplog.text


def test_pipes_are_no_images_and_what_is_missing_is_named(folder):
    os.mkfifo(folder / "pipe.jpg")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "broken.jpg").symlink_to("nowhere.jpg")
    assert len(list_images([folder])) == 3
    with pytest.raises(ValueError, match=r"pipe\.jpg, no file"):
        list_images([folder / "pipe.jpg"])
    with pytest.raises(FileNotFoundError, match=r"Expected an image or a folder.*nowhere"):
        list_images([folder / "nowhere"])
    with pytest.raises(ValueError, match=r"Expected images \(.avif.*empty"):
        list_images([folder / "empty"])
    (folder / "empty" / "photo.nef").write_bytes(b"of a camera")
    with pytest.raises(ValueError, match=r"Received: photo\.nef \(\.nef is not read"):
        list_images([folder / "empty"])
