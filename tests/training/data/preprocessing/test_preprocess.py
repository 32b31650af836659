import re
import struct
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.photos.prepare_photos import prepare_photo
from keras_vit.training.data.preprocessing import randaugment
from keras_vit.training.data.preprocessing.parse_operations import REGISTRY, parse
from keras_vit.training.data.preprocessing.preprocess import Preprocess, read_images

PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype(np.uint8)
JPEG = tf.io.encode_jpeg(PHOTO, quality=95)
PNG = tf.io.encode_png(PHOTO)

OPERATIONS = (  # What follows `decode`: every operation on images.
    "inception_crop(24) random_resized_crop((16,24)) resize(24) resize_small(24) random_crop(24) "
    "central_crop((20,24)) pad(2) random_shift(5) flip_lr value_range(-1,1) resize(8)|to_uint8 "
    "resize(8)|on_device resize(24)|randaugment(2,15) resize(24)|augreg('medium2') "
    "bit_train(32,32) bit_eval(32,32) decode resize_between(24,48,0.5,2) photometric "
    "resize(16)|pad_to(24)"
)
CLASSES = np.add(*np.mgrid[:80, :120])[..., None]  # The value of a pixel is its class.
OF_CLASSES = np.repeat(CLASSES, 3, axis=2).astype(np.uint8)


def test_every_operation_on_images_is_tried():
    own = {name for name, (make, _) in REGISTRY.items() if make.__module__.startswith("keras_vit.")}
    on_images = {name for name in own if REGISTRY[name][1] in ("image", "geometry", "text")}
    assert on_images <= {*re.findall(r"\w+", OPERATIONS)}


@pytest.mark.parametrize("text", OPERATIONS.split())
def test_eagerly_and_inside_tf_data_alike_following_the_seed(text):
    process = Preprocess(f"decode|{text}")
    photos, seeds = [*[JPEG] * 3, *[PNG] * 3], [(7, k) for k in range(6)]
    dataset = tf.data.Dataset.from_tensor_slices((photos, seeds)).map(process)
    for photo, seed, image in zip(photos, seeds, dataset, strict=True):
        np.testing.assert_array_equal(process(photo, seed), image)
    images = [process(PNG, (0, k)).numpy().tobytes() for k in (1, 1, *range(2, 10))]
    assert images[0] == images[1]
    assert (len(set(images)) > 1) == any(op.random for op in parse(text))


@pytest.mark.rows(
    ("random_crop(24)|flip_lr|central_crop(20)", 0, 0),
    ("pad(3)|random_shift(5)", 0, 0),
    ("value_range(0,9)|value_range(0,255,0,9)|random_crop(24)", 1e-3, 0),
    ("resize(160)|random_crop(24)", 1, 0),
    ("resize_small(40)", 2, 0),
    ("randaugment(3,2)", 0, 128),
    ("decode(precise=True)|inception_crop(40)|flip_lr|value_range(0,255)|pad(1)", 4, 0),
    ("decode(precise=True)|random_resized_crop((30,40))|flip_lr", 4, 0),
    ("decode(precise=True)|resize(40)|flip_lr", 3, 0),
)
def test_a_map_of_classes_moves_with_its_image(text, slack, filled, monkeypatch):
    moving = {name: randaugment.OPERATIONS[name] for name in ("Rotate", "ShearX", "TranslateY")}
    monkeypatch.setattr(randaugment, "OPERATIONS", moving)
    process, image = Preprocess(text), tf.constant(OF_CLASSES)
    image = tf.io.encode_jpeg(image, quality=100) if "decode" in text else image
    parts = {"image": image, "label": tf.constant(7), "mask": tf.constant(CLASSES, tf.uint8)}
    given = [(parts, (3, k)) for k in range(6)]
    for example, seed in given:
        found = process.example(example, seed)
        np.testing.assert_array_equal(found["image"], process(image, seed))
        mask, pixels = (np.asarray(found[key][..., 0], float) for key in ("mask", "image"))
        assert found["label"] == 7 and found["mask"].dtype == tf.int32
        inside = mask >= 0
        assert inside.mean() > 0.2 and (mask[~inside] == -1).all()
        assert np.abs(pixels - mask)[inside].max() <= slack
        assert (pixels[~inside] == filled).all()


def test_colors_leave_maps_alone_and_an_operation_may_see_the_whole_example(monkeypatch):
    still = "AutoContrast Equalize Invert Posterize Solarize Color Contrast Brightness Sharpness"
    found = {*randaugment.OPERATIONS} - {*randaugment._MOVING}
    assert found == {*still.split(), "Cutout", "SolarizeAdd"}
    colors = {"Invert": lambda image, *_: 255 - image}
    monkeypatch.setattr(randaugment, "OPERATIONS", colors)
    example = {"image": tf.constant(OF_CLASSES), "mask": tf.constant(CLASSES)}
    found = Preprocess("randaugment(1,10)|to_uint8").example(example, (0, 0))
    np.testing.assert_array_equal(found["image"], 255 - OF_CLASSES)
    np.testing.assert_array_equal(found["mask"], CLASSES)

    def paint(example, seed):
        drawn = tf.random.stateless_uniform((), seed, 0, 200, tf.int32)
        return example | {"image": tf.where(example["mask"] > drawn, 0, 255), "drawn": drawn}

    monkeypatch.setitem(REGISTRY, "paint", (lambda: paint, "example"))
    found = Preprocess("flip_lr(1.0)|paint").example(example, (0, 1))
    expected = np.where(CLASSES[:, ::-1] > found["drawn"].numpy(), 0, 255)
    np.testing.assert_array_equal(found["image"], expected)


def test_operations_draw_independently_of_each_other():
    # The same operation twice must not repeat its draw.
    twice, once = Preprocess("decode|flip_lr|flip_lr"), Preprocess("decode|flip_lr")
    changed = [not np.array_equal(twice(PNG, (3, k)), PHOTO) for k in range(40)]
    assert 0.2 < np.mean(changed) < 0.8
    flipped = [np.array_equal(once(PNG, (3, k)), PHOTO[:, ::-1]) for k in range(200)]
    assert 0.4 < np.mean(flipped) < 0.6


@pytest.mark.rows(
    ("decode|inceptoin_crop(224)", r"^Did you mean inception_crop\? .*'inceptoin_crop'"),
    ("decode||resize(2)", "Expected operations joined by"),
    ("decode|resize(__import__('os'))", r"Expected resize\("),
    ("decode|value_range(0, 1, 5, 5)", r"Expected value_range\(low"),
    ("decode(2)", "channels must be 1 or 3, not 2"),
    ("decode|inception_crop(0)", "at least one pixel, not 0"),
    ("decode|resize(60000)", "at most 134217728 pixels, not 60000 x 60000"),
    ("decode|augreg('heavy')", "'heavy'.*strong2"),
    ("decode|on_device|flip_lr", "only value_range after on_device"),
)
def test_wrong_texts_are_explained(text, message):
    with pytest.raises(ValueError, match=message):
        Preprocess(text)


@pytest.mark.parametrize(
    "text",
    [
        *(f"decode|resize({size})" for size in ("0", "-3", "16.5", "'16'", "[16]", "60000")),
        *("decode|central_crop(0)", "decode|resize_small(0)", "decode|to_uint8(1)"),
        *("decode|value_range('0', 1)", "decode|value_range(0, 1, 3, 3)", "decode(1, True, 2, 3)"),
        *("resize(2", "resize(2)(3)", "decode||resize(2)", "decode(channels=2)"),
    ],
)
def test_photos_for_predict_are_prepared_by_texts_that_train_alone(text):
    found = []
    for prepare in (parse, lambda text: prepare_photo(PHOTO, text)):
        with pytest.raises(ValueError, match="Expected ") as error:
            prepare(text)
        found.append(str(error.value))
    assert found[0] == found[1]


def test_texts_of_texts():
    for text, names in (
        ("augreg('none')", []),
        ("augreg('strong2')", ["randaugment", "mixup"]),
        ("bit_train(96, 96, flip=False)", ["resize", "random_crop"]),
        ("bit_train(96, 96)", ["resize", "random_crop", "flip_lr"]),
    ):
        assert [op.name for op in parse(text)] == names
    for width, resized, crop in ((95, 160, 128), (96, 512, 480)):  # BiT's resolution, by area.
        assert parse(f"bit_train(96, {width})")[0].apply(PHOTO).shape[:2] == (resized, resized)
        for text in (f"bit_train(96, {width})", f"bit_eval(96, {width})"):
            assert Preprocess(text)(PHOTO, (0, 0)).shape[:2] == (crop, crop)


def test_what_follows_on_device_is_left_to_the_training_step():
    text = "decode|resize(8)|to_uint8"
    split = Preprocess(f"{text}|on_device|value_range(-1, 1)", divided=True)
    on_host = split(PNG, (0, 0))
    assert on_host.dtype == tf.uint8
    whole = Preprocess(f"{text}|value_range(-1, 1)")(PNG, (0, 0))
    np.testing.assert_array_equal(split.on_device(on_host[None])[0], whole)
    undivided = Preprocess(split.text)
    np.testing.assert_array_equal(undivided(PNG, (0, 0)), whole)
    np.testing.assert_array_equal(undivided.on_device(whole), whole)


def test_with_an_operation_of_ones_own_the_first_image_has_the_range(monkeypatch, caplog):
    for name, low, size in (("to_range", -1, 2), ("standardize", -2, 4), ("to_unit", 0, 1)):
        make = partial(lambda low, size: lambda image: image / 255 * size + low, low, size)
        make.__module__ = "my_operations"
        monkeypatch.setitem(REGISTRY, name, (make, "image"))
    photos = tf.constant(["", PNG.numpy()])  # The first cannot be read.
    split = SimpleNamespace(read=lambda at: {"image": photos[at]}, num_examples=2)
    monkeypatch.setitem(REGISTRY, "own_label", (make, "label"))
    Preprocess("decode|resize(8)|to_range").require_fit("train_preprocess", split, (8, None, 3))
    twice = "value_range(-1,1)|value_range(-1,1)"
    others = ("standardize", "resize(8)", "value_range(0,1)|own_label", "value_range(1,-1)")
    for text in (*others, twice):
        with pytest.raises(ValueError, match=r"Expected config\.train_preprocess to map"):
            text = f"decode|resize(8)|{text}"
            Preprocess(text).require_fit("train_preprocess", split, (8, None, 3))
    assert not caplog.text
    Preprocess("decode|to_unit|value_range(-1,1)").require_range("it", split)
    assert "lie in [-1, -0.99" in caplog.text


@pytest.mark.rows(
    "value_range(-1,1)|to_uint8",
    "value_range(-1,1)|randaugment(2,10)",
    "value_range(0,1)|to_uint8|value_range(-1,1,0,1)",
)
def test_pixels_are_no_bytes_after_their_range(text):
    with pytest.raises(ValueError, match="rounds them to bytes, which maps them to"):
        Preprocess(f"decode|resize(8)|{text}").require_range("it")


def test_files_are_read_in_order_and_named_where_they_cannot_be(tmp_path):
    for number in range(3):
        png = tf.io.encode_png(np.full((4, 6, 3), number, np.uint8)).numpy()
        (tmp_path / f"{number}.png").write_bytes(png)
    files = [tmp_path / f"{number}.png" for number in (1, 0, 2)]
    images = read_images(files, "decode|resize([2, 3])|value_range")
    assert images.dtype == np.float32
    gray = np.ones((3, 2, 3, 3)) * [[[[1]]], [[[0]]], [[[2]]]]
    np.testing.assert_allclose(images, gray / 127.5 - 1, atol=1e-6)
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "b.png").write_bytes(png[:16] + struct.pack(">II", 20_000, 20_000) + png[24:])
    for name, reason in (("notes.txt", ""), ("b.png", ".* pixels")):
        with pytest.raises(ValueError, match=f"{name} cannot be read as an image: {reason}"):
            read_images([tmp_path / name], "decode|resize(2)|value_range")
