"""Photos that cannot be read or prepared; tests/training/data/preprocessing has those that can."""

import os

import numpy as np
import pytest

from keras_vit.photos import prepare_photo, read_photo

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    "text", ["decode|flip_lr", "decode|resize(4, antialias=True)", "resize(4, 'lanczos3')"]
)
def test_what_numpy_cannot_prepare_is_said(text):
    with pytest.raises(ValueError, match="keras-vit predict"):
        prepare_photo(PIXELS, text)


def test_a_crop_of_a_photo_too_small():
    with pytest.raises(ValueError, match="at least that large"):
        prepare_photo(PIXELS, "central_crop(6)")


def test_no_photo(tmp_path):
    (tmp_path / "notes.jpg").write_text("not an image")
    with pytest.raises(ValueError, match=r"notes\.jpg cannot be read as an image: an unknown"):
        read_photo(tmp_path / "notes.jpg")
    with pytest.raises(FileNotFoundError):
        read_photo(tmp_path / "nowhere.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ValueError, match=r"pipe\.jpg cannot be .* it is no regular file"):
        read_photo(tmp_path / "pipe.jpg")
