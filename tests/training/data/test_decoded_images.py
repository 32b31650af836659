from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.data import decoded_images
from keras_vit.training.data.preprocessing.decoding import Decode
from keras_vit.training.errors import UsageError
from tests.training.data.helpers import assert_equal, take, train, write_photos


@pytest.fixture
def decodes(monkeypatch):
    """A list that grows by one whenever an image is decoded."""
    found = []
    decode = Decode.__call__

    def counted(self, image, *window, **size):
        if image.dtype == tf.string:
            note = tf.numpy_function(lambda: found.append(1) or 1, [], tf.int64)
            with tf.control_dependencies([note]):
                image = tf.identity(image)
        return decode(self, image, *window, **size)

    monkeypatch.setattr(Decode, "__call__", counted)
    return found


def test_nothing_changes(digits_split):
    # 40 images in batches of 16: the third epoch, and from a step in the second one.
    split, settings = digits_split("train[:40]"), {"batch_size": 16, "mixup_p": 0.3}
    whole = take(train(split, **settings), 8)
    assert_equal(take(train(split, **settings, cache=True), 8), whole)
    assert_equal(take(train(split, **settings, cache=True, start_step=3), 5), whole[3:])


def test_every_image_is_decoded_once(digits_split, decodes):
    dataset = train(digits_split("train[:40]"), batch_size=16, cache=True)
    decodes.clear()
    # Some images are asked for again before the first time is over.
    take(dataset, 50)
    assert 40 <= len(decodes) < 80
    decodes.clear()
    take(dataset, 50)
    assert not decodes


@pytest.fixture
def photos(tmp_path):
    write_photos(tmp_path, [f"class{number % 2}/{number}.jpg" for number in range(6)])
    return data.open(f"folder:{tmp_path}", "train")


def test_a_run_of_photos_resumes_with_the_same_bits_skipping_what_cannot_be_read(photos):
    (photos.dataset.place / "class0/2.jpg").write_bytes(b"")
    options = {"text": "decode|inception_crop(8)", "batch_size": 4, "on_error": "skip"}
    whole = take(train(photos, **options, cache=True), 9)
    for step in (1, 4):
        found = take(train(photos, **options, cache=True, start_step=step), 5)
        assert_equal(found, whole[step : step + 5])
    options["text"] = "decode|resize(8)"
    assert_equal(*(take(train(photos, **options, cache=cache), 4) for cache in (False, True)))


def test_what_does_not_fit_is_refused(photos, monkeypatch):
    # 6 images of 12.5 rows on average.
    wanted = 6 * 12.5 * 8 * 3
    monkeypatch.setattr(decoded_images, "free_memory", lambda: wanted / 0.75 * 1.1)
    take(train(photos, cache=True), 1)
    monkeypatch.setattr(decoded_images, "free_memory", lambda: wanted / 0.75 * 0.9)
    with pytest.raises(UsageError, match=r"^config\.cache: the 6 decoded .* data set\.$"):
        train(photos, cache=True)


def test_an_operation_before_decode_is_refused(photos):
    with pytest.raises(ValueError, match="begin with decode"):
        train(photos, text="resize(8)", cache=True)


def test_a_container_has_less_memory_than_its_machine(tmp_path, monkeypatch):
    machine = SimpleNamespace(available=80_000)
    monkeypatch.setattr(decoded_images.psutil, "virtual_memory", lambda: machine)
    monkeypatch.setattr(decoded_images, "_CGROUP", tmp_path)
    assert decoded_images.free_memory() == 80_000
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 1500\n")
    for limit, free in (("max", 80_000), ("9000", 5500), ("900000", 80_000)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert decoded_images.free_memory() == free
