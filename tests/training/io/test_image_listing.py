"""Images are found by name."""

import os

import numpy as np
import pytest

from keras_vit.training.io import image_listing
from keras_vit.training.io.image_listing import list_images
from tests.training.data.helpers import write_photos


@pytest.fixture
def folder(tmp_path):
    """Two images in a folder and one below it, among files that are none."""
    write_photos(
        tmp_path, ("b.png", "a.PNG", "deep/c.png"), lambda number: np.full((4, 6, 3), number)
    )
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
    assert (
        ", 7.heic and 2 more (.heic is not read: pip install 'keras-vit-16x16[heic]'); notes.txt "
        "(.txt is not read)"
    ) in caplog.text


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
