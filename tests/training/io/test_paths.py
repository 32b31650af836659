import os
import pathlib

import pytest
from etils import epath

from keras_vit.training.errors import UsageError
from keras_vit.training.io import image_listing
from keras_vit.training.io.paths import any_path, is_remote, local_path, read_lines
from tests.training.data.helpers import write_photos

UNKNOWN = ["memory://run", "http://host/run"]


def test_paths_of_this_machine_and_of_stores(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, path in {
        **{name: name for name in ("runs/a", "C:/runs", "a:b", "gs:", pathlib.Path("runs"))},
        "~/x": tmp_path / "x",
        "file:///data/a%20b": "/data/a b",
        "file://localhost/data": "/data",
    }.items():
        assert not is_remote(name) and local_path(name) == any_path(name) == pathlib.Path(path)
    stores = "gs://b/run", "s3://b/run", pathlib.Path("gs://b/run")
    wrong = "", "file://host/run", "~nobody-of-this/x", tmp_path / "\udcff"
    for name in (*UNKNOWN, *stores, *wrong):
        with pytest.raises(UsageError, match="Expected a path"):
            local_path(name)
    assert is_remote("gs://bucket/run") and isinstance(any_path("gs://bucket/run"), epath.Path)
    assert str(any_path("s3://b/run") / "x") == "s3://b/run/x"
    for unknown in UNKNOWN:
        with pytest.raises(UsageError, match=f"of gs://, s3:// or .* Received: {unknown}"):
            any_path(unknown)


@pytest.mark.rows(
    "train --config=quickstart --workdir", "vtab runs/none --workdir", "export npz run --output"
)
def test_commands_refuse_before_any_work(words, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "file system. Received: memory://run" in refused(*f"{words}=memory://run".split())
    assert not list(tmp_path.iterdir())


def test_lines_of_text(tmp_path, ram):
    for folder in (tmp_path, epath.Path(ram())):
        (folder / "names.txt").write_bytes(" crow\r\n\n  große Meise \n".encode())
        assert read_lines(folder / "names.txt") == ["crow", "große Meise"]
        (folder / "names.txt").write_bytes("Häher".encode("latin-1"))
        with pytest.raises(ValueError, match=r"a text in UTF-8\. Received: .*names\.txt \("):
            read_lines(folder / "names.txt")
    with pytest.raises(UsageError, match=r"/none\.txt cannot be read: .*Check the name"):
        read_lines(folder / "none.txt")


def test_folders_are_searched_and_what_is_left_out_is_named(tmp_path, caplog, monkeypatch):
    write_photos(tmp_path, ["b.png", "a.PNG", "deep/c.png"])
    (tmp_path / "._b.png").write_bytes(b"what macOS leaves beside a file")
    (tmp_path / "raw").mkdir()
    for name in ("README", "notes.txt", "raw/1.nef", *(f"{number}.heic" for number in range(12))):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "broken.png").symlink_to("nowhere.png")
    for names, error, message in (
        ("pipe.png", ValueError, r"pipe\.png, no file"),
        ("nowhere", FileNotFoundError, r"Expected an image or a folder.*nowhere"),
        ("raw", ValueError, r"Received: 1\.nef \(\.nef is not read"),
    ):
        with pytest.raises(error, match=message):
            image_listing.list_images([tmp_path / names])
    (tmp_path / "raw" / "1.nef").unlink()
    with pytest.raises(ValueError, match=r"Expected images \(.avif.*raw"):
        image_listing.list_images([tmp_path / "raw"])

    assert {".ico", ".jp2", ".ppm", ".tga"} < {*image_listing.EXTENSIONS}
    monkeypatch.setattr(image_listing, "EXTENSIONS", (".png",))
    monkeypatch.setattr(image_listing, "_NAMED", 10)
    found = image_listing.list_images([tmp_path / "notes.txt", tmp_path])
    assert found == [tmp_path / name for name in ("notes.txt", "a.PNG", "b.png", "deep/c.png")]
    assert f"Left out of {tmp_path}: README (no extension); 0.heic, 1.heic, 10.heic" in caplog.text
    named = ", 7.heic and 2 more (.heic is not read: pip install 'keras-vit-16x16[heic]')"
    assert f"{named}; notes.txt (.txt is not read)" in caplog.text
