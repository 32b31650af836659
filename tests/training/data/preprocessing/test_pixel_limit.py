"""Images that claim more pixels than anybody means are refused by their header."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit import photos
from training.data.preprocessing import pixel_limit
from training.data.preprocessing.gif_pixels import gif_pixels
from training.data.preprocessing.preprocess import Preprocess

FORMATS = ("JPEG", "PNG", "GIF", "BMP")


def encode(kind, width=40, height=30):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (9, 99, 199)).save(buffer, kind)
    return buffer.getvalue()


def claiming(kind, width, height):
    """A small image whose header claims another size."""
    content = encode(kind)
    if kind == "PNG":
        header = b"IHDR" + struct.pack(">II", width, height) + content[24:29]
        return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]
    if kind == "GIF":
        return content[:6] + struct.pack("<HH", width, height) + content[10:]
    if kind == "BMP":
        return content[:18] + struct.pack("<ii", width, -height) + content[26:]
    place = content.index(b"\xff\xc0") + 5
    return content[:place] + struct.pack(">HH", height, width) + content[place + 4 :]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("text", ["decode|resize(8)", "decode|inception_crop(8)"])
def test_the_size_is_looked_up_before_decoding(kind, text, monkeypatch):
    monkeypatch.setattr(pixel_limit, "MAX_PIXELS", 1200)
    eager = Preprocess(text)
    graph = tf.function(Preprocess(text))
    for process in (eager, graph):
        assert process(tf.constant(encode(kind)), tf.constant([0, 0])).shape == (8, 8, 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match="at most 1200 pixels"):
            process(tf.constant(encode(kind, 41, 30)), tf.constant([0, 0]))


def animated(count, screen=None):
    """A GIF of so many images of 20 x 20 pixels, on a screen of its own size or another."""
    noise = np.random.default_rng(0).integers(0, 256, (count, 20, 20), np.uint8)
    first, *others = map(Image.fromarray, noise)
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, comment=b"a comment")
    content = buffer.getvalue()
    return content[:6] + struct.pack("<HH", *screen) + content[10:] if screen else content


@pytest.mark.parametrize("screen", [None, (1, 1)])
def test_all_images_of_a_gif_count(screen, monkeypatch):
    for content, pixels in ((animated(1, screen), 400), (animated(3, screen), 1200)):
        assert gif_pixels(tf.constant(content)) == pixels
    monkeypatch.setattr(pixel_limit, "MAX_PIXELS", 1200)
    decode = tf.function(Preprocess("decode|resize(8)"))
    assert decode(tf.constant(animated(3, screen)), tf.constant([0, 0])).shape == (8, 8, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 1200 pixels"):
        decode(tf.constant(animated(4, screen)), tf.constant([0, 0]))


def test_a_gif_that_is_cut_short_counts_as_far_as_it_goes():
    content = animated(3)
    counted = [int(gif_pixels(tf.constant(content[:end]))) for end in range(0, len(content), 41)]
    assert counted == sorted(counted) and counted[0] == 0 and counted[-1] == 1200


@pytest.mark.parametrize("kind", FORMATS)
def test_what_claims_gigabytes_is_refused_at_once(kind):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected an image of at most"):
        pixel_limit.within_pixel_limit(tf.constant(claiming(kind, 20_000, 20_000)))


@pytest.mark.parametrize("content", [b"", b"\x89PNG", b"GIF89a", b"BM", b"no image" * 9])
def test_what_is_no_image_is_left_to_the_decoder(content):
    # Pillow's errors are Python's outside of a graph.
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        Preprocess("decode|resize(8)")(tf.constant(content), tf.constant([0, 0]))


def test_images_of_arrays_are_left_alone():
    image = np.zeros((4, 4, 3), np.uint8)
    np.testing.assert_array_equal(Preprocess("decode")(tf.constant(image), (0, 0)), image)


@pytest.mark.parametrize("kind", [*FORMATS, "TIFF", "WEBP"])
def test_pillow_is_held_to_the_same_limit(kind, monkeypatch):
    assert photos.MAX_PIXELS == pixel_limit.MAX_PIXELS
    monkeypatch.setattr(photos, "MAX_PIXELS", 1200)
    assert photos.read_photo(io.BytesIO(encode(kind))).shape == (30, 40, 3)
    with pytest.raises(ValueError, match="at most 1200 pixels, received 41 x 30"):
        photos.read_photo(io.BytesIO(encode(kind, 41, 30)))


def test_a_pipe_is_no_photo(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ValueError, match=r"pipe\.jpg cannot be .* it is no regular file"):
        photos.read_photo(tmp_path / "pipe.jpg")
