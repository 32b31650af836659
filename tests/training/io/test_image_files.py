"""Images are found by name, read in order, and named where they cannot be read."""

import os
import struct

import numpy as np
import pytest
import tensorflow as tf

from training.io.image_files import list_images, read_images


@pytest.fixture
def folder(tmp_path):
    """Two images in a folder and one below it, among files that are none."""
    for number, name in enumerate(("b.png", "a.PNG", "deep/c.png")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(tf.io.encode_png(np.full((4, 6, 3), number, np.uint8)).numpy())
    (tmp_path / "._b.png").write_bytes(b"what macOS leaves beside a file")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_folders_are_searched_by_name_and_files_kept(folder):
    found = list_images([folder / "notes.txt", folder])
    assert found == [folder / name for name in ("notes.txt", "a.PNG", "b.png", "deep/c.png")]
    images = read_images(found[1:], "decode|resize([2, 3])")
    assert images.dtype == np.float32
    np.testing.assert_array_equal(images, np.ones((3, 2, 3, 3)) * [[[[1]]], [[[0]]], [[[2]]]])


def test_pipes_are_no_images(folder):
    os.mkfifo(folder / "pipe.jpg")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "broken.jpg").symlink_to("nowhere.jpg")
    assert len(list_images([folder])) == 3
    with pytest.raises(ValueError, match=r"pipe\.jpg, no file"):
        list_images([folder / "pipe.jpg"])


def test_what_is_missing_or_broken_is_named(folder):
    with pytest.raises(FileNotFoundError, match=r"Expected an image or a folder.*nowhere"):
        list_images([folder / "nowhere"])
    with pytest.raises(ValueError, match=r"Expected images \(.bmp.*empty"):
        list_images([folder / "empty"])
    content = (folder / "b.png").read_bytes()
    many_pixels = content[:16] + struct.pack(">II", 20_000, 20_000) + content[24:]
    (folder / "b.png").write_bytes(many_pixels)
    for name, reason in (("notes.txt", ""), ("b.png", ".* pixels")):
        with pytest.raises(ValueError, match=f"{name} cannot be read as an image: {reason}"):
            read_images([folder / name], "decode|resize(2)")
