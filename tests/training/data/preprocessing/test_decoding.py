"""One set of rules for photos: TensorFlow's decoders, Pillow's, and both in `decode`."""

import io
import os
import struct
import zlib
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit import photos
from keras_vit.photos import prepare_photo, read_photo
from training.data import load_dataset, random_access
from training.data.preprocessing import decoding
from training.data.preprocessing.preprocess import Preprocess

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
PHOTO = Image.fromarray(PIXELS)
GRAY = np.asarray(PHOTO.convert("L"))[..., None].repeat(3, axis=-1)
PALETTE = PHOTO.quantize(8)
NO_IMAGE = (tf.errors.InvalidArgumentError, ValueError)


def encode(image, file_format, **options):
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def oriented(orientation, file_format="JPEG", image=PHOTO, **options):
    exif = Image.Exif()
    exif[0x010E] = "a description before the orientation"
    exif[0x0112] = orientation
    exif[0x0131] = "software after it"
    return encode(image, file_format, exif=exif, **options)


def decoded(content, text="decode", **settings):
    process = Preprocess(text, **settings)
    function = tf.function(lambda data: process(data, (0, 0)), autograph=False)
    eager = process(tf.constant(content), (0, 0)).numpy()
    np.testing.assert_array_equal(function(tf.constant(content)), eager)
    return eager


class Case(NamedTuple):
    """A file, its pixels as seen and as stored, and whether a module reads it in the same way."""

    content: bytes
    seen: np.ndarray
    stored: np.ndarray
    in_module: bool = True


def plain(content, pixels, in_module=True):
    return Case(content, pixels, pixels, in_module)


def turned(orientation, file_format, **options):
    content = oriented(orientation, file_format, **options)
    stored = Image.open(io.BytesIO(content))
    seen = np.asarray(ImageOps.exif_transpose(stored))
    assert seen.shape == ((7, 5, 3) if orientation > 4 else (5, 7, 3))
    in_module = file_format in ("JPEG", "PNG") or (file_format, orientation) == ("WEBP", 1)
    return Case(content, seen, np.asarray(stored), in_module)


def cases():
    colors = np.asarray(PALETTE.convert("RGB"))
    bits = Image.fromarray(GRAY[..., 0].astype(np.uint16) * 256 + 255)
    wide = tf.io.encode_png(PIXELS.astype(np.uint16) * 256 + 255).numpy()
    other = PHOTO.transpose(Image.Transpose.FLIP_LEFT_RIGHT).quantize(8)
    inks = encode(PHOTO.convert("CMYK"), "JPEG", quality=100)
    yield "gray", plain(encode(PHOTO.convert("L"), "PNG"), GRAY)
    yield "gray with alpha", plain(encode(PHOTO.convert("LA"), "PNG"), GRAY)
    alpha = Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]]))
    yield "alpha", plain(encode(alpha, "PNG"), PIXELS)
    yield "palette", plain(encode(PALETTE, "PNG"), colors)
    yield "palette with transparency", plain(encode(PALETTE, "PNG", transparency=3), colors)
    yield "16 bits", plain(encode(bits, "PNG"), GRAY)
    yield "16 bits, color", plain(wide, PIXELS)
    yield "16 bits, TIFF", plain(encode(bits, "TIFF"), GRAY, False)
    yield "CMYK", plain(inks, np.asarray(Image.open(io.BytesIO(inks)).convert("RGB")))
    yield "GIF", plain(encode(PALETTE, "GIF"), colors)
    animated = encode(PALETTE, "GIF", save_all=True, append_images=[other])
    yield "animated GIF", plain(animated, colors)
    yield "BMP", plain(encode(PHOTO, "BMP"), PIXELS)
    yield "BMP with palette", plain(encode(PALETTE, "BMP"), colors, False)
    for orientation in range(1, 9):
        for file_format in ("JPEG", "PNG", "TIFF", "WEBP"):
            options = {"lossless": True} if file_format == "WEBP" else {}
            yield f"{file_format} {orientation}", turned(orientation, file_format, **options)


CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_every_format_becomes_the_same_rgb(name):
    case, text = CASES[name], "decode(precise=True)"
    # Colors of inks are computed in another order.
    atol = 2 if name == "CMYK" else 0
    np.testing.assert_array_equal(read_photo(io.BytesIO(case.content)), case.seen)
    np.testing.assert_allclose(decoded(case.content, text), case.seen, atol=atol)
    if case.in_module:
        found = decoded(case.content, text, graph_only=True)
        np.testing.assert_allclose(found, case.seen, atol=atol)
    elif "TIFF" in name:
        with pytest.raises(tf.errors.InvalidArgumentError):
            decoded(case.content, graph_only=True)
    if case.seen is not case.stored:
        as_stored = read_photo(io.BytesIO(case.content), upright=False)
        np.testing.assert_array_equal(as_stored, case.stored)
        for found in (
            decoded(case.content, "decode(precise=True, upright=False)"),
            decoded(case.content, text, upright=False),
        ):
            np.testing.assert_array_equal(found, case.stored)


BIG, LITTLE = b"MM\0*\0\0\0\x08\0\x01", b"II*\0\x08\0\0\0\x01\0"
SIX = b"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00"
EIGHT = b"\x12\x01\x03\x00\x01\x00\x00\x00\x08\x00\x00\x00"


@pytest.mark.parametrize(
    ("tiff", "turns"),
    [
        (BIG + SIX, -1),
        (LITTLE + EIGHT, 1),
        # Not at the beginning of a field of 12 bytes, no number of an orientation, no EXIF.
        (BIG + b"\0\0\0" + SIX, 0),
        (BIG + SIX.replace(b"\x06", b"\x09"), 0),
        (b"", 0),
    ],
)
def test_either_order_of_bytes_and_what_only_looks_like_it(tiff, turns):
    photo = encode(PHOTO, "JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0" + tiff
    found = decoded(photo[:2] + segment + photo[2:])
    np.testing.assert_array_equal(found, np.rot90(decoded(photo), turns))


def test_a_crop_sees_the_turned_photo():
    large = PHOTO.resize((70, 50))
    text = "decode(precise=True)|inception_crop(8)|flip_lr|value_range(-1, 1)"
    turned = ImageOps.exif_transpose(Image.open(io.BytesIO(oriented(6, image=large))))
    process = Preprocess(text)
    for seed in range(5):
        seen = process(tf.constant(oriented(6, image=large)), (0, seed))
        expected = process(tf.constant(np.asarray(turned)), (0, seed))
        np.testing.assert_allclose(seen, expected, atol=1e-5)


def test_the_graph_of_a_module_calls_no_python():
    process = Preprocess("decode|resize(4)", graph_only=True)
    spec = tf.TensorSpec((), tf.string)
    graph = tf.function(lambda data: process(data, (0, 0)), [spec]).get_concrete_function().graph
    functions = graph.as_graph_def().library.function
    kinds = {node.op for function in functions for node in function.node_def}
    assert "DecodeImage" in kinds and not kinds & {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
    photo = tf.constant(oriented(6))
    np.testing.assert_array_equal(
        process(photo, (0, 0)), Preprocess("decode|resize(4)")(photo, (0, 0))
    )


def test_folders_are_read_upright_and_tfds_as_stored(tmp_path, digits_dir):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.jpg").write_bytes(oriented(8))
    (example,) = load_dataset.load_dataset(f"folder:{tmp_path}", "train")
    assert example["image"].shape == (7, 5, 3)
    source = random_access.open_source("digits", "train", digits_dir)
    assert source.preprocess("decode")(tf.constant(oriented(8)), (0, 0)).shape == (5, 7, 3)


@pytest.mark.parametrize(
    "text",
    [
        "decode|resize(9)|value_range(-1,1)",
        "decode(precise=True)|resize([4, 6])|value_range(-1,1)",
        "decode|resize_small(4)|central_crop([3, 4])|value_range(0, 1)",
        "decode|resize_small(11)|central_crop(10)|value_range(-1,1)",
        "decode|resize(3)|to_uint8|on_device|value_range(-1,1)",
    ],
)
def test_numpy_prepares_photos_as_tensorflow_does(text):
    process = Preprocess(text)
    images = process(tf.constant(encode(PHOTO, "PNG")), (0, 0))[None]
    np.testing.assert_allclose(prepare_photo(PIXELS, text), process.on_device(images)[0], atol=2e-5)


def test_what_numpy_cannot_prepare_is_said():
    for text in ("decode|flip_lr", "decode|resize(4, antialias=True)", "resize(4, 'lanczos3')"):
        with pytest.raises(ValueError, match="training predict"):
            prepare_photo(PIXELS, text)
    with pytest.raises(ValueError, match="at least that large"):
        prepare_photo(PIXELS, "central_crop(6)")


def test_no_image(tmp_path):
    (tmp_path / "notes.jpg").write_text("not an image")
    with pytest.raises(ValueError, match=r"notes\.jpg cannot be read as an image: an unknown"):
        read_photo(tmp_path / "notes.jpg")
    with pytest.raises(FileNotFoundError):
        read_photo(tmp_path / "nowhere.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ValueError, match=r"pipe\.jpg cannot be .* it is no regular file"):
        read_photo(tmp_path / "pipe.jpg")
    for content in (b"", b"\x06", b"\xff\xd8", b"\x89PNG", b"GIF89a", b"BM"):
        with pytest.raises(NO_IMAGE):
            decoded(content)
    process = Preprocess("decode")
    graph = tf.function(lambda data: process(data, (0, 0)), autograph=False)
    # The second is a TIFF that was cut short.
    for content in (b"not an image", CASES["TIFF 1"].content[:60]):
        with pytest.raises(ValueError, match="Pillow cannot read it"):
            process(tf.constant(content), (0, 0))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Pillow cannot read it"):
            graph(tf.constant(content))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "turned"])
@pytest.mark.parametrize("text", ["decode|resize(8)", "decode|inception_crop(8)"])
def test_the_size_is_looked_up_before_decoding(kind, text, monkeypatch):
    assert photos.MAX_PIXELS == decoding.MAX_PIXELS == 1 << 27
    monkeypatch.setattr(decoding, "MAX_PIXELS", 1200)
    monkeypatch.setattr(photos, "MAX_PIXELS", 1200)

    def photo(width):
        image = Image.new("RGB", (width, 30))
        return oriented(6, image=image) if kind == "turned" else encode(image, kind)

    assert read_photo(io.BytesIO(photo(40))).size == 3600
    with pytest.raises(ValueError, match="at most 1200 pixels, received 41 x 30"):
        read_photo(io.BytesIO(photo(41)))
    for in_module in {False, kind in ("JPEG", "PNG", "turned")}:
        for process in (eager := Preprocess(text, graph_only=in_module), tf.function(eager)):
            assert process(tf.constant(photo(40)), tf.constant([0, 0])).shape == (8, 8, 3)
            with pytest.raises(NO_IMAGE, match="at most 1200 pixels"):
                process(tf.constant(photo(41)), tf.constant([0, 0]))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP"])
def test_what_claims_gigabytes_is_refused_at_once(kind):
    content, side = encode(PHOTO, kind), 20_000
    if kind == "PNG":
        header = b"IHDR" + struct.pack(">II", side, side) + content[24:29]
        crc = struct.pack(">I", zlib.crc32(header))
        content = content[:12] + header + crc + content[33:]
    elif kind == "GIF":
        content = content[:6] + struct.pack("<HH", side, side) + content[10:]
    elif kind == "BMP":
        content = content[:18] + struct.pack("<ii", side, -side) + content[26:]
    else:
        place = content.index(b"\xff\xc0") + 5
        content = content[:place] + struct.pack(">HH", side, side) + content[place + 4 :]
    with pytest.raises(
        NO_IMAGE, match=r"Expected an image of at most|Pillow cannot read it: Image"
    ):
        Preprocess("decode")(tf.constant(content), (0, 0))
