import os
import struct

import numpy as np
import pytest
import tensorflow as tf

from training.io import image_files


@pytest.fixture
def folder(tmp_path):
    """Two images in a folder and one below it, among files that are none."""
    for number, name in enumerate(("b.png", "a.PNG", "deep/c.png")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(tf.io.encode_png(np.full((4, 6, 3), number, np.uint8)).numpy())
    (tmp_path / "._b.png").write_bytes(b"what macOS leaves beside a file")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def test_folders_are_searched_by_name_and_files_kept(folder):
    found = image_files.list_images([folder / "notes.txt", folder])
    assert found == [folder / name for name in ("notes.txt", "a.PNG", "b.png", "deep/c.png")]


def test_images_are_read_in_order_and_preprocessed(folder):
    files = image_files.list_images([folder])
    images = image_files.read_images(files, "decode|resize([2, 3])")
    assert images.dtype == np.float32
    np.testing.assert_array_equal(images, np.ones((3, 2, 3, 3)) * [[[[1]]], [[[0]]], [[[2]]]])


def test_pipes_are_no_images(folder):
    os.mkfifo(folder / "pipe.jpg")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "broken.jpg").symlink_to("nowhere.jpg")
    assert len(image_files.list_images([folder])) == 3
    with pytest.raises(ValueError, match=r"pipe\.jpg, no file"):
        image_files.list_images([folder / "pipe.jpg"])


def test_an_image_of_too_many_pixels_is_named(folder):
    file = folder / "b.png"
    content = file.read_bytes()
    file.write_bytes(content[:16] + struct.pack(">II", 20_000, 20_000) + content[24:])
    with pytest.raises(ValueError, match=r"b\.png cannot be read as an image: .* pixels"):
        image_files.read_images([file], "decode|resize(2)")


def test_what_is_missing_or_broken_is_named(folder):
    with pytest.raises(FileNotFoundError, match=r"Expected an image or a folder.*nowhere"):
        image_files.list_images([folder / "nowhere"])
    (folder / "empty").mkdir()
    with pytest.raises(ValueError, match=r"Expected images \(.bmp.*empty"):
        image_files.list_images([folder / "empty"])
    with pytest.raises(ValueError, match=r"notes\.txt cannot be read as an image: "):
        image_files.read_images([folder / "notes.txt"], "decode|resize(2)")
