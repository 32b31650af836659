"""One set of rules for photos: TensorFlow's decoders, Pillow's, and both in `decode`."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.photos import prepare_photo, read_photo
from training.data import load_dataset, random_access
from training.data.preprocessing.exif_orientation import exif_orientation
from training.data.preprocessing.preprocess import Preprocess

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
PHOTO = Image.fromarray(PIXELS)
GRAY = np.asarray(PHOTO.convert("L"))[..., None].repeat(3, axis=-1)


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


def sixteen_bits():
    return Image.fromarray(GRAY[..., 0].astype(np.uint16) * 256 + 255)


def palette():
    image = PHOTO.convert("RGB").quantize(8)
    return image, np.asarray(image.convert("RGB"))


CASES = {
    "gray": (encode(PHOTO.convert("L"), "PNG"), GRAY),
    "gray with alpha": (encode(PHOTO.convert("LA"), "PNG"), GRAY),
    "alpha": (encode(Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]])), "PNG"), PIXELS),
    "palette": (encode(palette()[0], "PNG"), palette()[1]),
    "palette with transparency": (encode(palette()[0], "PNG", transparency=3), palette()[1]),
    "16 bits": (encode(sixteen_bits(), "PNG"), GRAY),
    "16 bits, TIFF": (encode(sixteen_bits(), "TIFF"), GRAY),
    "GIF": (encode(palette()[0], "GIF"), palette()[1]),
    "BMP": (encode(PHOTO, "BMP"), PIXELS),
    "BMP with palette": (encode(palette()[0], "BMP"), palette()[1]),
    "WebP": (encode(PHOTO, "WEBP", lossless=True), PIXELS),
    "TIFF": (encode(PHOTO, "TIFF"), PIXELS),
}


@pytest.mark.parametrize("name", CASES)
def test_every_format_becomes_the_same_rgb(name):
    content, expected = CASES[name]
    np.testing.assert_array_equal(decoded(content), expected)
    np.testing.assert_array_equal(read_photo(io.BytesIO(content)), expected)


def test_a_jpeg_of_inks_becomes_rgb():
    content = encode(PHOTO.convert("CMYK"), "JPEG", quality=100)
    pillow = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    np.testing.assert_array_equal(read_photo(io.BytesIO(content)), pillow)
    assert np.abs(decoded(content, "decode(precise=True)") - pillow).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_photos_are_turned_upright(orientation, file_format):
    options = {"lossless": True} if file_format == "WEBP" else {}
    content = oriented(orientation, file_format, **options)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))))
    if orientation > 4:
        assert expected.shape == (7, 5, 3)
    np.testing.assert_array_equal(decoded(content, "decode(precise=True)"), expected)
    np.testing.assert_array_equal(read_photo(io.BytesIO(content)), expected)
    as_stored = np.asarray(Image.open(io.BytesIO(content)))
    for settings in ({"text": "decode(precise=True, upright=False)"}, {"upright": False}):
        text = settings.pop("text", "decode(precise=True)")
        np.testing.assert_array_equal(decoded(content, text, **settings), as_stored)


def test_either_order_of_bytes_and_what_only_looks_like_it():
    content = oriented(6)
    start = content.index(b"MM\0*")
    assert exif_orientation(tf.constant(content)) == 6
    field = b"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00"
    little = b"II*\0\x08\0\0\0\x01\0" + b"\x12\x01\x03\x00\x01\x00\x00\x00\x08\x00\x00\x00"
    assert exif_orientation(tf.constant(content[:start] + little)) == 8
    big = b"MM\0*\0\0\0\x08\0\x01"
    assert exif_orientation(tf.constant(content[:start] + big + field)) == 6
    # Not at the beginning of a field of 12 bytes, no number of an orientation, no EXIF.
    assert exif_orientation(tf.constant(content[:start] + big + b"\0\0\0" + field)) == 1
    wrong = field.replace(b"\x06", b"\x09")
    assert exif_orientation(tf.constant(content[:start] + big + wrong)) == 1
    assert exif_orientation(tf.constant(encode(PHOTO, "JPEG"))) == 1
    for short in (b"", b"\x06", b"\xff\xd8"):
        assert exif_orientation(tf.constant(short)) == 1


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
    process = Preprocess("decode")
    graph = tf.function(lambda data: process(data, (0, 0)), autograph=False)
    # The second is a TIFF that was cut short.
    for content in (b"not an image", CASES["TIFF"][0][:60]):
        with pytest.raises(ValueError, match="Pillow cannot read it"):
            process(tf.constant(content), (0, 0))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Pillow cannot read it"):
            graph(tf.constant(content))
