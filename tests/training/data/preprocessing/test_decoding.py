import functools
import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.photos import prepare_photos
from keras_vit.photos.prepare_photos import keeps_upright, prepare_photo, read_photo
from keras_vit.training import data
from keras_vit.training.data.preprocessing import decoding
from keras_vit.training.data.preprocessing.preprocess import Preprocess
from tests.odd_photos import CASES, PHOTO, PIXELS, TURNED, encode, oriented

NO_IMAGE = (tf.errors.InvalidArgumentError, ValueError)
ROWS, COLUMNS = np.mgrid[0:400, 0:600]
SMOOTH = np.stack(  # Smooth as a photo is out of focus: waves of 188 pixels and more.
    [127 + 100 * np.sin(ROWS / a) * np.cos(COLUMNS / b) for a, b in ((30, 47), (51, 40), (35, 60))],
    axis=-1,
).astype(np.uint8)
SMOOTH_JPEG = tf.io.encode_jpeg(SMOOTH, quality=95)


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
    atol = 2 if name == "CMYK" else 0  # Pillow and TensorFlow round the colors of inks differently.
    np.testing.assert_array_equal(read_photo(io.BytesIO(content)), expected)
    np.testing.assert_allclose(decoded(content, text), expected, atol=atol)
    if "TIFF" in name:
        with pytest.raises(tf.errors.InvalidArgumentError):
            decoded(content, graph_only=True)
    elif not name.startswith("WEBP") or name == "WEBP 1":
        found = decoded(content, text, graph_only=True)
        np.testing.assert_allclose(found, expected, atol=atol)
    if name in {f"{kind} {number}" for kind, number in TURNED}:
        ours = read_photo(io.BytesIO(content), upright=False), decoded(content, text, upright=False)
        for found in (*ours, decoded(content, "decode(precise=True, upright=False)")):
            np.testing.assert_array_equal(found, np.asarray(Image.open(io.BytesIO(content))))


def tiff(order="<", start=8, kind="H", count=1, number=6, fields=1, tag=0x112):
    """EXIF with the orientation as its last field, and long values at the end."""
    kinds = {"H": 3, "I": 4, "h": 8, "i": 9}
    value = struct.pack(f"{order}{count}{kind}", *[number] * count)
    end = start + 2 + 12 * fields + 4
    placed = value.ljust(4, b"\0") if len(value) <= 4 else struct.pack(order + "I", end)
    other = struct.pack(order + "HHII", 0x10E, 4, 1, 6) * (fields - 1)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", start)
    field = struct.pack(order + "HHI", tag, kinds[kind], count) + placed
    body = struct.pack(order + "H", fields) + other + field + bytes(4)
    return head.ljust(start, b"\x12") + body + value * (len(value) > 4)


def segment(body, marker=0xE1):
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def exif(**options):
    return segment(b"Exif\0\0" + tiff(**options))


def xmp(number):
    return f'<rdf:Description tiff:Orientation="{number}"/>'.encode()


XMP = b"http://ns.adobe.com/xap/1.0/\0"
RAW = f"\nexif\n 40\n{(b'Exif' + bytes(2) + tiff()).hex()}\n".encode()
PROFILE = segment(b"ICC_PROFILE\0\1\1" + exif(number=3) + bytes(3000), 0xE2)
# Segments of a JPEG before its own, or chunks of a PNG, and the orientation that they give.
ORIENTATIONS = {
    **{f"{order} {kind}": (exif(order=order, kind=kind), 6) for order in "<>" for kind in "HIhi"},
    **{f"from {at}": (exif(order=">", start=at, fields=70), 6) for at in (16, 9, 5000)},
    **{f"{count} values": (exif(count=count), 6 if count else 1) for count in (0, 2, 3)},
    "no orientation": (exif(tag=0x111), 1),
    "out of range": (exif(number=9) + segment(XMP + xmp(6)), 1),
    "zero": (exif(number=0) + segment(XMP + xmp(6)), 1),
    "negative": (exif(number=-6, kind="h") + segment(XMP + xmp(6)), 1),
    "behind a profile": (PROFILE + exif(), 6),
    "behind Photoshop's": (segment(b"Photoshop 3.0\0" + exif(number=3), 0xED) + exif(), 6),
    "in a comment alone": (segment(exif(), 0xFE), 1),
    "behind a table": (segment(bytes([3]) + bytes([9]) * 64, 0xDB) + exif(), 6),
    "behind fill": (b"\xff\xff\xff" + exif(), 6),
    "twice": (exif(number=8) + exif(number=3), 8),
    "written twice": (segment(b"Exif\0\0" * 2 + tiff()), 6),
    "XMP": (segment(XMP + xmp(6)), 6),
    "XMP, before EXIF without": (segment(XMP + xmp(6)) + exif(tag=0x111), 6),
    "XMP, after EXIF": (exif(number=3) + segment(XMP + xmp(6)), 3),
    "no EXIF": (segment(b"Exif\0\0"), 1),
    "damaged": (segment(b"Exif\0\0MM\0\0" + tiff()[4:]) + segment(XMP + xmp(6)), 1),
    "cut short": (segment(b"Exif\0\0" + tiff()[:15]), 1),
    "beyond the end": (segment(b"Exif\0\0II*\0\xff\xff\xff\xff"), 1),
    "eXIf": (chunk(b"eXIf", tiff(start=16)), 6),
    "eXIf in text": (chunk(b"tEXt", b"Comment\0" + chunk(b"eXIf", tiff())), 1),
    "iTXt": (chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(6)), 6),
    "tEXt": (chunk(b"tEXt", b"Raw profile type exif\0" + RAW), 6),
    "zTXt": (chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(RAW)), 6),
}


@pytest.mark.filterwarnings("ignore:.*(Corrupt|corrupt|entries)")
@pytest.mark.parametrize("name", ORIENTATIONS)
def test_every_reader_finds_the_orientation_that_pillow_finds(name):
    inserted, number = ORIENTATIONS[name]
    is_png = inserted[:1] == b"\0"
    photo = encode(PHOTO, "PNG" if is_png else "JPEG")
    for at in (33, len(photo) - 12) if is_png else (2, 20):  # Before and after the pixels of a PNG.
        content = photo[:at] + inserted + photo[at:]
        stored = Image.open(io.BytesIO(content))
        expected = np.asarray(stored)
        if number > 1:
            expected = np.rot90(expected, {6: -1, 3: 2, 8: 1}[number])
        if name != "damaged":
            np.testing.assert_array_equal(np.asarray(ImageOps.exif_transpose(stored)), expected)
        np.testing.assert_array_equal(read_photo(io.BytesIO(content)), expected)
        text = "decode(precise=True)"
        np.testing.assert_array_equal(decoded(content, text), expected)
        if name not in ("tEXt", "zTXt"):
            np.testing.assert_array_equal(decoded(content, text, graph_only=True), expected)


def test_a_crop_sees_the_turned_photo_and_folders_are_read_upright(tmp_path, data_dir):
    content = oriented(6, image=PHOTO.resize((70, 50)))
    process = Preprocess("decode(precise=True)|inception_crop(8)|flip_lr|value_range(-1, 1)")
    for seed in range(5):
        photos = content, read_photo(io.BytesIO(content))
        seen, expected = (process(tf.constant(photo), (0, seed)) for photo in photos)
        np.testing.assert_allclose(seen, expected, atol=1e-5)
    (tmp_path / "a").mkdir()  # Folders are read upright, and TFDS as stored.
    (tmp_path / "a/1.jpg").write_bytes(oriented(8))
    for name, shape in ((f"folder:{tmp_path}", (7, 5, 3)), ("digits", (5, 7, 3))):
        process = data.open(name, "train", data_dir).preprocess("decode")
        assert process(tf.constant(oriented(8)), (0, 0)).shape == shape


def bmp(bits, *, old=False, rows=5, colors=None, compression=0, width=11):
    """Returns a BMP with random pixels; with negative `rows` the upper row comes first."""
    generator, sizes = np.random.default_rng(bits), (12, 3) if old else (40, 4)
    count = 0 if bits > 8 else 1 << bits if colors is None else colors
    lengths = sizes[1] * count, (width * bits + 31) // 32 * 4 * abs(rows)
    palette, pixels = (generator.integers(0, 256, each, np.uint8).tobytes() for each in lengths)
    if colors:  # no number is beyond the colors
        pixels = bytes(len(pixels))
    header = (width, rows, 1, bits)
    if old:
        packed = struct.pack("<IHHHH", 12, *header)
    else:
        further = (compression, len(pixels), 0, 0, colors or 0, 0)
        packed = struct.pack("<IiiHHIIiiII", 40, *header, *further)
    begin = 14 + len(packed) + len(palette)
    start = struct.pack("<2sIHHI", b"BM", begin + len(pixels), 0, 0, begin)
    return start + packed + palette + pixels


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


@pytest.mark.rows(
    bmp(24, old=True),
    bmp(16),
    bmp(8, compression=1),
    bmp(4, compression=2),
    bmp(32, compression=3),
    bmp(8)[:-1],
    BMPS["1 bits"][:60],
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


@pytest.mark.rows(
    "decode|resize(9)|value_range(-1,1)",
    "decode(precise=True)|resize([4, 6])|value_range(-1,1)",
    "decode|resize_small(4)|central_crop([3, 4])|value_range(0, 1)",
    "decode|resize(3)|to_uint8|on_device|value_range(-1,1)",
)
def test_numpy_prepares_photos_as_tensorflow_does(text):
    image = Preprocess(text)(tf.constant(encode(PHOTO, "PNG")), (0, 0))
    np.testing.assert_allclose(prepare_photo(PIXELS, text), image, atol=2e-5)


def test_numpy_makes_gray_as_tensorflow_does():
    text = "decode(channels=1)|resize((5, 7))|value_range(0, 255)"
    image = Preprocess(text.replace("channels=1", "channels=1, precise=True"))
    expected = image(tf.io.encode_png(PIXELS), (0, 0))
    np.testing.assert_allclose(prepare_photo(PIXELS, text), expected, atol=1)
    assert keeps_upright(text) and not keeps_upright("decode(upright=False)|resize(3)")
    for wrong in ("decode(chanels=1)", "decode(channels=2)", "resize()", "decode(", "resize(x)"):
        with pytest.raises(ValueError) as error:
            prepare_photo(PIXELS, wrong)
        assert "\n" not in str(error.value)


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


@pytest.mark.rows(
    *((kind, "resize") for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "turned")),
    # Of which JPEGs alone are cropped while they are decoded.
    *((kind, "inception_crop") for kind in ("JPEG", "PNG", "turned")),
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


@pytest.fixture
def windows(monkeypatch):
    found = []

    def noted(function, image, *window, ratio=1, **options):
        found.append((ratio, *(tuple(each.numpy()) for each in window)))
        return function(image, *window, ratio=ratio, **options)

    for name in ("decode_jpeg", "decode_and_crop_jpeg"):
        monkeypatch.setattr(tf.io, name, functools.partial(noted, getattr(tf.io, name)))
    return found


@pytest.mark.rows(
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
    ((400, 600), "central_crop(20)", 1.0, 1),  # What is not resized has no size to stay above.
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
    # Other formats are decoded whole, photos whole before they are turned.
    whole, reduced = (Preprocess("decode|resize(10)", reduced_decoding=least) for least in (0, 1))
    png = tf.io.encode_png(SMOOTH)
    np.testing.assert_array_equal(reduced(png, (0, 0)), whole(png, (0, 0)))
    assert not np.array_equal(reduced(SMOOTH_JPEG, (0, 0)), whole(SMOOTH_JPEG, (0, 0)))


@pytest.mark.rows(1, 3, 6, 8)
def test_whole_images_are_kept_at_a_fraction_and_turned(number):
    stored = Image.fromarray(np.resize(SMOOTH, (300, 400, 3)))
    content = tf.constant(oriented(number, image=stored))
    size = (20, 45) if number < 5 else (45, 20)
    small = Preprocess(f"decode|inception_crop({size})", reduced_decoding=2).decoded(content)
    # A fourth leaves 75 x 100 pixels as it is stored, an eighth too few.
    plain = tf.io.decode_jpeg(content, ratio=4)
    turn = {1: 0, 3: 2, 6: 3, 8: 1}[number]
    np.testing.assert_array_equal(small, np.rot90(plain, turn))
