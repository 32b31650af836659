import functools
import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit import prepare_photos
from keras_vit.prepare_photos import prepare_photo, read_photo
from keras_vit.training import data
from keras_vit.training.data.preprocessing import decoding
from keras_vit.training.data.preprocessing.preprocess import Preprocess
from tests.odd_photos import CASES, PHOTO, PIXELS, TURNED, encode, oriented

NO_IMAGE = (tf.errors.InvalidArgumentError, ValueError)


@functools.cache
def processes(text, **settings):
    process = Preprocess(text, **settings)
    return process, tf.function(lambda data: process(data, (0, 0)), autograph=False)


def decoded(content, text="decode", **settings):
    process, function = processes(text, **settings)
    eager = process(tf.constant(content), (0, 0)).numpy()
    np.testing.assert_array_equal(function(tf.constant(content)), eager)
    return eager


@pytest.mark.parametrize("name", CASES)
def test_every_photo_becomes_the_same_rgb_and_is_read_as_stored_where_that_is_asked_for(name):
    (content, expected), text = CASES[name], "decode(precise=True)"
    # Pillow and TensorFlow round the colors of inks differently.
    atol = 2 if name == "CMYK" else 0
    np.testing.assert_array_equal(read_photo(io.BytesIO(content)), expected)
    np.testing.assert_allclose(decoded(content, text), expected, atol=atol)
    if "TIFF" in name:
        with pytest.raises(tf.errors.InvalidArgumentError):
            decoded(content, graph_only=True)
    elif not name.startswith("WEBP") or name == "WEBP 1":
        found = decoded(content, text, graph_only=True)
        np.testing.assert_allclose(found, expected, atol=atol)
    if name in {f"{kind} {number}" for kind, number in TURNED}:
        for found in (
            read_photo(io.BytesIO(content), upright=False),
            decoded(content, "decode(precise=True, upright=False)"),
            decoded(content, text, upright=False),
        ):
            np.testing.assert_array_equal(found, np.asarray(Image.open(io.BytesIO(content))))


BIG, SIX = b"MM\0*\0\0\0\x08\0\x01", b"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00"
LITTLE, EIGHT = b"II*\0\x08\0\0\0\x01\0", b"\x12\x01\x03\x00\x01\x00\x00\x00\x08\x00\x00\x00"
# Not at the beginning of a field of 12 bytes, no number of an orientation, no EXIF.
NOTHING = (BIG + b"\0\0\0" + SIX, BIG + SIX.replace(b"\x06", b"\x09"), b"")


@pytest.mark.parametrize(
    ("tiff", "turns"), [(BIG + SIX, -1), (LITTLE + EIGHT, 1), *((each, 0) for each in NOTHING)]
)
def test_either_order_of_bytes_and_what_only_looks_like_it(tiff, turns):
    photo = encode(PHOTO, "JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0" + tiff
    found = decoded(photo[:2] + segment + photo[2:])
    np.testing.assert_array_equal(found, np.rot90(decoded(photo), turns))


def test_a_crop_sees_the_turned_photo_and_folders_are_read_upright(tmp_path, data_dir):
    content = oriented(6, image=PHOTO.resize((70, 50)))
    process = Preprocess("decode(precise=True)|inception_crop(8)|flip_lr|value_range(-1, 1)")
    for seed in range(5):
        photos = content, read_photo(io.BytesIO(content))
        seen, expected = (process(tf.constant(photo), (0, seed)) for photo in photos)
        np.testing.assert_allclose(seen, expected, atol=1e-5)
    # Folders are read upright, and TFDS as stored.
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.jpg").write_bytes(oriented(8))
    for name, shape in ((f"folder:{tmp_path}", (7, 5, 3)), ("digits", (5, 7, 3))):
        process = data.open(name, "train", data_dir).preprocess("decode")
        assert process(tf.constant(oriented(8)), (0, 0)).shape == shape


def bmp(bits, *, old=False, rows=5, colors=None, compression=0, width=11):
    """Returns a BMP with random pixels; with negative `rows` the upper row comes first."""
    generator, sizes = np.random.default_rng(bits), (12, 3) if old else (40, 4)
    count = 0 if bits > 8 else 1 << bits if colors is None else colors
    palette, pixels = (
        generator.integers(0, 256, length, np.uint8).tobytes()
        for length in (sizes[1] * count, (width * bits + 31) // 32 * 4 * abs(rows))
    )
    if colors:  # no number is beyond the colors
        pixels = bytes(len(pixels))
    packed = struct.pack(
        *(
            ("<IHHHH", 12, width, rows, 1, bits)
            if old
            else (
                "<IiiHHIIiiII",
                40,
                width,
                rows,
                1,
                bits,
                compression,
                len(pixels),
                0,
                0,
                colors or 0,
                0,
            )
        )
    )
    begin = 14 + len(packed) + len(palette)
    return (
        struct.pack("<2sIHHI", b"BM", begin + len(pixels), 0, 0, begin) + packed + palette + pixels
    )


BMPS = {
    **{f"{bits} bits": bmp(bits) for bits in (1, 4, 8, 24, 32)},
    **{f"{bits} bits, OS/2": bmp(bits, old=True) for bits in (1, 4, 8)},
    **{f"{bits} bits, from above": bmp(bits, rows=-4) for bits in (1, 4, 8, 24)},
    **{f"{width} wide": bmp(1, width=width) for width in (1, 8, 32, 33)},
    "of 3 colors": bmp(8, colors=3),
    "1 bit of Pillow": encode(PHOTO.convert("1"), "BMP"),
    "GIF": encode(PHOTO.quantize(8), "GIF"),
    "with alpha": encode(PHOTO.convert("RGBA"), "BMP"),
}


@pytest.mark.parametrize("name", BMPS)
def test_a_module_reads_bmp_as_pillow_does(name):
    expected = read_photo(io.BytesIO(BMPS[name]))
    np.testing.assert_array_equal(decoded(BMPS[name], graph_only=True), expected)
    gray = decoded(BMPS[name], "decode(channels=1)", graph_only=True)
    np.testing.assert_allclose(gray, tf.image.rgb_to_grayscale(expected), atol=1)


@pytest.mark.parametrize(
    "content",
    [
        bmp(24, old=True),
        bmp(16),
        bmp(8, compression=1),
        bmp(4, compression=2),
        bmp(32, compression=3),
        bmp(8)[:-1],
        BMPS["1 bits"][:60],
    ],
)
def test_a_module_refuses_other_bmps(content):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoded(content, graph_only=True)


def test_the_graph_of_a_module_calls_no_python():
    process, function = processes("decode|resize(4)", graph_only=True)
    graph = function.get_concrete_function(tf.TensorSpec((), tf.string)).graph.as_graph_def()
    kinds = {node.op for each in graph.library.function for node in each.node_def}
    assert "DecodeImage" in kinds and not kinds & {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
    upright = decoded(oriented(6), "decode|resize(4)")
    np.testing.assert_array_equal(process(tf.constant(oriented(6)), (0, 0)), upright)


@pytest.mark.parametrize(
    "text",
    [
        "decode|resize(9)|value_range(-1,1)",
        "decode(precise=True)|resize([4, 6])|value_range(-1,1)",
        "decode|resize_small(4)|central_crop([3, 4])|value_range(0, 1)",
        "decode|resize(3)|to_uint8|on_device|value_range(-1,1)",
    ],
)
def test_numpy_prepares_photos_as_tensorflow_does(text):
    image = Preprocess(text)(tf.constant(encode(PHOTO, "PNG")), (0, 0))
    np.testing.assert_allclose(prepare_photo(PIXELS, text), image, atol=2e-5)


# The second is a TIFF that was cut short.
@pytest.mark.parametrize("content", [b"not an image", CASES["TIFF 1"][0][:60]])
def test_pillows_errors_are_pythons_outside_of_a_graph(content):
    process, function = processes("decode")
    with pytest.raises(ValueError, match="Pillow cannot read it"):
        process(tf.constant(content), (0, 0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Pillow cannot read it"):
        function(tf.constant(content))
    with pytest.raises(ValueError, match=r"Received: arrays of float32\."):
        process(tf.zeros((2, 2, 3)), (0, 0))


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        *((kind, "resize") for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "turned")),
        # Of which JPEGs alone are cropped while they are decoded.
        *((kind, "inception_crop") for kind in ("JPEG", "PNG", "turned")),
    ],
)
def test_the_size_is_looked_up_before_decoding(kind, operation, monkeypatch):
    text = f"decode|{operation}(8)"
    assert prepare_photos.MAX_PIXELS == decoding.MAX_PIXELS == 1 << 27
    monkeypatch.setattr(decoding, "MAX_PIXELS", 1200)
    monkeypatch.setattr(prepare_photos, "MAX_PIXELS", 1200)

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


ROWS, COLUMNS = np.mgrid[0:400, 0:600]
# Smooth as a photo is out of focus: waves of 188 pixels and more.
SMOOTH = np.stack(
    [127 + 100 * np.sin(ROWS / a) * np.cos(COLUMNS / b) for a, b in ((30, 47), (51, 40), (35, 60))],
    axis=-1,
).astype(np.uint8)
SMOOTH_JPEG = tf.io.encode_jpeg(SMOOTH, quality=95)


@pytest.fixture
def windows(monkeypatch):
    found = []

    def noted(function, image, *window, ratio=1, **options):
        found.append((ratio, *(tuple(each.numpy()) for each in window)))
        return function(image, *window, ratio=ratio, **options)

    for name in ("decode_jpeg", "decode_and_crop_jpeg"):
        monkeypatch.setattr(tf.io, name, functools.partial(noted, getattr(tf.io, name)))
    return found


@pytest.mark.parametrize(
    ("size", "text", "least", "expected"),
    [
        ((448, 448), "resize(224)", 1.0, 2),
        ((447, 448), "resize(224)", 1.0, 1),
        ((448, 447), "resize(224)", 1.0, 1),
        ((896, 1000), "resize(224)", 1.0, 4),
        ((896, 1000), "resize(224)", 1.5, 2),
        ((5000, 200), "resize(224)", 1.0, 1),
        ((400, 600), "resize(100)", 1.01, 2),
        ((400, 600), "resize((40, 75))", 1.0, 8),
        ((400, 600), "resize_small(100)|central_crop(90)", 1.0, 4),
        ((400, 600), "resize(100)", 0.0, 1),
        # What is not resized has no size to stay above.
        ((400, 600), "central_crop(20)", 1.0, 1),
    ],
)
def test_the_largest_ratio_that_leaves_enough(size, text, least, expected, windows):
    image = tf.io.encode_jpeg(np.zeros((*size, 3), np.uint8))
    Preprocess(f"decode|{text}", reduced_decoding=least)(image, (0, 0))
    assert windows == [(expected,)]


def test_crops_are_decoded_at_that_size(windows):
    for number in range(20):
        for least in (0, 1):
            crop = Preprocess("decode|inception_crop((40, 50))", reduced_decoding=least)
            crop(SMOOTH_JPEG, (0, number))
    for (one, window), (ratio, smaller) in zip(windows[::2], windows[1::2], strict=True):
        top, left, height, width = window
        enough = [r for r in (1, 2, 4, 8) if height // r >= 40 and width // r >= 50]
        assert one == 1 and ratio == max(enough, default=1)
        sides = np.floor(np.array([top, left, top + height, left + width]) / ratio + 0.5)
        assert smaller == (*sides[:2], *(sides[2:] - sides[:2]))
    assert {ratio for ratio, _ in windows[1::2]} >= {2, 4}
    # Other formats and turned photos are decoded whole.
    whole, reduced = (Preprocess("decode|resize(10)", reduced_decoding=least) for least in (0, 1))
    turned = tf.constant(oriented(6, image=Image.fromarray(SMOOTH)))
    for content in (tf.io.encode_png(SMOOTH), turned):
        np.testing.assert_array_equal(reduced(content, (0, 0)), whole(content, (0, 0)))
    assert not np.array_equal(reduced(SMOOTH_JPEG, (0, 0)), whole(SMOOTH_JPEG, (0, 0)))
