"""Photos that cannot be read or prepared; tests/training/data/preprocessing has those that can."""

import os
import sys
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from keras_vit import prepare_photos
from keras_vit.prepare_photos import prepare_photo, read_photo


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        ("decode|flip_lr", (5, 7), "keras-vit predict"),
        ("decode|resize(4, antialias=True)", (5, 7), "keras-vit predict"),
        ("resize(4, 'lanczos3')", (5, 7), "keras-vit predict"),
        ("central_crop(6)", (5, 7), "at least that large"),
        ("decode|resize_small(200)", (1, 4000), "would become 200 x 800000, above 134217728"),
    ],
)
def test_what_cannot_be_prepared_is_said(text, size, message):
    with pytest.raises(ValueError, match=message):
        prepare_photo(np.zeros((*size, 3), np.uint8), text)


def test_avif_is_read_and_heic_where_its_extra_is_installed(tmp_path, monkeypatch):
    Image.new("RGB", (7, 5), (9, 200, 30)).save(tmp_path / "photo.avif")
    assert read_photo(tmp_path / "photo.avif").shape == (5, 7, 3)
    monkeypatch.setitem(sys.modules, "pillow_heif", extra := Mock())
    prepare_photos._formats.cache_clear()
    read_photo(tmp_path / "photo.avif")
    assert extra.register_heif_opener.called


def test_no_photo(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_photo(tmp_path / "nowhere.jpg")
    for name, content, said in (
        ("notes.jpg", b"not an image", "an unknown format"),
        ("empty.jpg", b"", "it is empty"),
        # Ghostscript would run it.
        ("program.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "an unknown format"),
        ("phone.heic", b"\0\0\0\x18ftypheic\0\0\0\0", r"HEIC needs: pip install 'keras-vit.*heic"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} cannot be read as an image: {said}"):
            read_photo(tmp_path / name)
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ValueError, match=r"pipe\.jpg cannot be .* it is no regular file"):
        read_photo(tmp_path / "pipe.jpg")


def test_16_bits_are_read_and_32_refused(tmp_path):
    pixels = np.arange(20, dtype=np.uint16).reshape(4, 5) << 11
    for name in ("deep.png", "deep.tif", "deep.ppm"):
        Image.fromarray(pixels).save(tmp_path / name)
        np.testing.assert_array_equal(read_photo(tmp_path / name)[..., 0], pixels >> 8)
    for mode in ("F", "I"):
        Image.new(mode, (5, 4), 200).save(tmp_path / "photo.tif")
        with pytest.raises(ValueError, match="expected 8 or 16 bits for a color, received 32"):
            read_photo(tmp_path / "photo.tif")
