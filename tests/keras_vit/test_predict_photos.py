import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.photos import prepare_photos
from keras_vit.photos.imagenet_classes import imagenet_classes
from keras_vit.photos.prepare_photos import prepare_photo, read_photo
from tests.keras_vit.small import FEW_STEPS, forward, make_images, make_vit, of_jax, to_numpy

NAMES = ("crow", "finch", "great tit")
STRIPE = np.zeros((2, 16, 16, 3), "float32")
STRIPE[:, 3] = 1


@pytest.fixture
def model():
    model = make_vit(num_classes=3)
    model.class_names = NAMES
    return model


def test_the_most_probable_come_first_under_their_names(model):
    images = make_images(4)
    probabilities = to_numpy(keras.ops.softmax(forward(model, images)))
    for row, classes in zip(probabilities, keras_vit.predict(model, images, top=2), strict=True):
        order = np.argsort(-row)[:2]
        assert [name for name, _ in classes] == [NAMES[i] for i in order]
        np.testing.assert_allclose([p for _, p in classes], row[order], atol=1e-6)
    first = [(name, pytest.approx(p, abs=1e-6)) for name, p in keras_vit.predict(model, images)[0]]
    assert keras_vit.predict(model, images[0]) == [first]
    sigmoid = keras_vit.predict(model, images, top=3, activation="sigmoid")
    assert sum(p for _, p in sigmoid[0]) != pytest.approx(1)
    head = model.get_layer("head")
    head.set_weights([np.zeros(head.kernel.shape), np.array([20.0, 19.0, 30.0])])
    (rounded,) = keras_vit.predict(model, images[0], activation="sigmoid")
    assert rounded == [("great tit", 1.0), ("crow", 1.0), ("finch", 1.0)]
    model.class_names = None
    assert {name for name, _ in keras_vit.predict(model, images)[0]} == {"0", "1", "2"}


def test_the_activation_is_the_models_and_is_saved_with_it(tmp_path):
    for num_classes, activation in ((1, None), (3, "sigmoid")):
        model = make_vit(num_classes=num_classes)
        model.activation = activation
        model.save(tmp_path / "m.keras")
        loaded = keras.saving.load_model(tmp_path / "m.keras")
        assert loaded.activation == model.activation == "sigmoid"
        probabilities = keras.ops.sigmoid(model(STRIPE, training=False))
        for row, classes in zip(probabilities, keras_vit.predict(loaded, STRIPE), strict=True):
            expected = sorted(to_numpy(row), reverse=True)
            np.testing.assert_allclose([p for _, p in classes], expected, atol=1e-6)
        with pytest.raises(ValueError, match="`activation` must be one of"):
            model.activation = "relu"
        with pytest.raises(ValueError, match=r"`preprocessing` as a text\. Rec"):
            model.from_config(model.get_config() | {"preprocessing": 5})


def test_files_and_bytes_are_photos(model, tmp_path):
    photos = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), np.uint8)
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for file, photo in zip(files, photos, strict=True):
        Image.fromarray(photo).save(file)
    of_bytes = keras_vit.predict(model, photos, top=3)
    assert keras_vit.predict(model, files, top=3) == of_bytes
    turned = Image.open(files[1]).transpose(Image.Transpose.ROTATE_90)
    turned.getexif()[0x0112] = 6  # turns it back
    *of_mixed, _ = keras_vit.predict(model, [files[0], turned, photos[2], photos[2, :10]], top=3)
    for row, same in zip(of_mixed, of_bytes, strict=True):
        assert dict(row) == pytest.approx(dict(same), abs=1e-6)
    with pytest.raises(ValueError, match=r"floats of one size.*Received: \(20, 30, 3\) of"):
        keras_vit.predict(model, [files[0], photos[1].astype("float32")])
    with pytest.raises(ValueError, match=r"\(height, width, 3\).*Received: \(20, 30, 4\)"):
        keras_vit.predict(model, [files[0], np.zeros((20, 30, 4), np.uint8)])
    (alone,) = keras_vit.predict(model, str(files[1]), top=3)
    assert alone == [(name, pytest.approx(value, abs=1e-6)) for name, value in of_bytes[1]]
    model.preprocessing = "decode|resize([16,16])|value_range(-1,1)"
    assert keras_vit.predict(model, photos, top=3) == of_bytes
    model.preprocessing = "decode|resize_small(18)|central_crop([16,16])|value_range(-1,1)"
    assert keras_vit.predict(model, photos, top=3) != of_bytes
    model.preprocessing = "decode|resize([16,16])|value_range(0, 1)"
    with pytest.raises(ValueError, match=r"to end with value_range\(-1, 1\).*Received: 'decode"):
        keras_vit.predict(model, photos)


@pytest.mark.rows(
    (lambda images: images * 255, r"in \[-1, 1\].*in \[0, 255\].*uint8; else pass"),
    (lambda images: images * 1.002, r"in \[-1, 1\].*in \[0, 1\.002\]"),
    (lambda images: images * -1.002, r"in \[-1, 1\].*in \[-1\.002, -0\]"),
    (lambda images: images * np.nan, r"in \[-1, 1\].*nan"),
    (lambda images: (images * 300).astype(int), "in 0..255"),
    (lambda images: images > 0, "of bool"),
    (lambda images: images[:, :8], "Expected images of 16 x 16 pixels"),
    (lambda images: images[..., :1], r"shape \(batch, height, width, 3\)"),
    (lambda images: images[:0], "at least one"),
)
def test_other_sizes_and_ranges_are_refused(change, message, model):
    with pytest.raises(ValueError, match=message):
        keras_vit.predict(model, change(STRIPE))


def test_pixels_between_0_and_1_are_warned_of(model, recwarn):
    images = np.random.default_rng(0).uniform(0, 1, (1, 16, 16, 3))
    for scale in (1, 1.0009):  # rounding may leave the range by a little
        keras_vit.predict(model, (images * 2 - 1) * np.float32(scale))
    # With torch, Keras itself causes warnings of NumPy's.
    assert not [each for each in recwarn if each.category is UserWarning]
    with pytest.warns(UserWarning, match=r"pass images \* 2 - 1"):
        keras_vit.predict(model, images)


def test_bad_use(model):
    images = -np.ones((1, 16, 16, 3), "float32")
    for arguments in ({"top": 0}, {"top": 1.5}, {"batch_size": 0}, {"activation": "relu"}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            keras_vit.predict(model, images, **arguments)
    diverged = make_vit(num_classes=3)
    diverged.get_layer("head").bias.assign([0.0, np.nan, 0.0])
    headless, unpooled = make_vit(num_classes=None), make_vit(classifier="unpooled")
    clone, images_in = keras.models.clone_model(model), keras.Input((16, 16, 3))
    features = keras.layers.Flatten()(model.endpoints["encoded"])
    for other, message in (
        (headless, r"with a head.*which gives \([^)]*\)\.$"),
        (unpooled, r"with a head.*which gives \([^)]*\)\.$"),
        (diverged, "Expected finite logits"),
        (keras.Sequential([images_in, model]), rf"model\.get_layer\('{model.name}'\)"),
        (keras.Sequential([headless, keras.layers.Dense(3)]), "Its head stands outside of ours"),
        (keras.Sequential([images_in, model, keras.layers.Dense(3)]), "Its head stands outside"),
        (keras.Model(model.input, keras.layers.Dense(3)(features)), "Its head stands outside"),
        (clone, r"original\.set_weights\(copy\.get_weights\(\)\)"),
        (model.any_resolution(), "takes images of any size, without names of classes"),
    ):
        with pytest.raises(ValueError, match=message):
            keras_vit.predict(other, images)
    model.set_weights(clone.get_weights())
    with pytest.raises(FileNotFoundError):
        keras_vit.predict(model, "nowhere.jpg")


def test_imagenets_names():
    names = imagenet_classes()
    assert len(set(names)) == 1000
    expected = {0: "tench", 1: "goldfish", 134: "crane (bird)", 517: "crane (machine)"}
    expected |= {281: "tabby", 639: "maillot, tank suit", 999: "toilet tissue"}
    assert {index: names[index] for index in expected} == expected


def test_several_threads_predict_with_a_model_and_make_the_data_of_another(model):
    images = make_images(5)
    once, logits = keras_vit.predict(model, images), model.predict(images, verbose=0)
    student = make_vit(num_classes=3)  # As in a distillation.
    student.compile("sgd", "mse", **FEW_STEPS)

    def pairs():
        yield images, pool.submit(model.predict, images, verbose=0).result(60)

    with ThreadPoolExecutor(4) as pool:
        names = pool.map(lambda _: keras_vit.predict(model, images, batch_size=2), range(12))
        rows = list(pool.map(lambda _: model.predict(images, verbose=0), range(4)))
        assert np.isfinite(student.evaluate(pairs(), verbose=0))
    for found in names:
        assert [[name for name, _ in row] for row in found] == [[n for n, _ in row] for row in once]
    np.testing.assert_allclose(rows, [logits] * 4, atol=1e-5)
    assert keras_vit.predict(model, images) == once


@pytest.mark.rows(
    ("decode|flip_lr", (5, 7), "keras-vit predict"),
    ("decode|resize(4, 'area', True)", (5, 7), "keras-vit predict"),
    ("resize(4, 'lanczos3')", (5, 7), "keras-vit predict"),
    ("central_crop(6)", (5, 7), "at least that large"),
    ("decode|resize_small(200)", (1, 4000), "would become 200 x 800000, above 134217728"),
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


def test_no_photo_and_photos_of_16_and_32_bits(tmp_path):
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
    pixels = np.arange(20, dtype=np.uint16).reshape(4, 5) << 11
    for name in ("deep.png", "deep.tif", "deep.ppm"):
        Image.fromarray(pixels).save(tmp_path / name)
        np.testing.assert_array_equal(read_photo(tmp_path / name)[..., 0], pixels >> 8)
    for mode in ("F", "I"):
        Image.new(mode, (5, 4), 200).save(tmp_path / "photo.tif")
        with pytest.raises(ValueError, match="expected 8 or 16 bits for a color, received 32"):
            read_photo(tmp_path / "photo.tif")


@of_jax
def test_on_jax_everything_runs_where_tensorflow_is_not_installed(tmp_path):
    code = """
import sys
sys.modules["tensorflow"] = None  # importing it fails
import keras, numpy as np, keras_vit
labels = [0, 1] * 2
images = np.linspace(-1, 1, 4 * 32 * 32 * 3, dtype="float32").reshape(4, 32, 32, 3)
model = keras_vit.create_model("ViT-Ti/16", image_size=32, num_classes=2, num_layers=1)
model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
before = model.get_weights()
assert model.fit(images, np.array(labels), verbose=0).history["loss"][0] < 1
assert any(np.any(a != b) for a, b in zip(before, model.get_weights()))
model.save("m.keras")
again = keras.saving.load_model("m.keras")
photos = np.uint8((images + 1) * 127.5)
assert keras_vit.predict(again, photos) == keras_vit.predict(model, photos)
analysis = keras_vit.analysis
maps = analysis.class_maps(model, images, labels)
for found in (analysis.attention_rollout(model, images), maps):
    assert found.shape == (4, 2, 2) and found.max() <= 1
assert analysis.attention_distance(model, images).shape == (1, 3)
keras_vit.save_checkpoint(model, "m.npz")
keras_vit.load_checkpoint(again, "m.npz")
assert keras_vit.few_shot_head(again, images, labels).output_shape == (None, 2)
assert model.any_resolution()(images[:, :16]).shape == (4, 2)
assert not [name for name in sys.modules if name.startswith("tensorflow.")]
"""
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
