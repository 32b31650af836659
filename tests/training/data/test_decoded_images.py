import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from training.data import decoded_images, pipeline
from training.data.free_memory import free_memory
from training.data.preprocessing.decoding import Decode
from training.errors import UsageError

TEXT = "decode|resize(12)|random_crop(10)|flip_lr|value_range(-1,1)"


def train(name, **changes):
    arguments = {"split": "train[:40]", "preprocess": TEXT, "batch_size": 16, "seed": 5}
    return pipeline.train_dataset(name=name, **{**arguments, **changes})


def take(dataset, count):
    return [{k: v.numpy() for k, v in one.items()} for one in dataset.take(count)]


def assert_equal(first, second):
    for one, two in zip(first, second, strict=True):
        for key in one:
            np.testing.assert_array_equal(one[key], two[key])


@pytest.fixture
def decodes(monkeypatch):
    """A list that grows by one whenever an image is decoded."""
    found = []
    decode = Decode.__call__

    def counted(self, image, *windows, **sizes):
        if image.dtype == tf.string:
            note = tf.numpy_function(lambda: found.append(1) or 1, [], tf.int64)
            with tf.control_dependencies([note]):
                image = tf.identity(image)
        return decode(self, image, *windows, **sizes)

    monkeypatch.setattr(Decode, "__call__", counted)
    return found


@pytest.mark.parametrize("shuffle", ["full", "blocks", "sorted"])
@pytest.mark.parametrize("mixup_p", [0.0, 0.3])
def test_nothing_changes(digits_dir, shuffle, mixup_p):
    # 40 images in batches of 16: the third epoch, and from a step in the second one.
    options = {"data_dir": digits_dir, "shuffle": shuffle, "mixup_p": mixup_p}
    whole = take(train("digits", **options), 8)
    assert_equal(take(train("digits", **options, cache=True), 8), whole)
    assert_equal(take(train("digits", **options, cache=True, start_step=3), 5), whole[3:])


def test_every_image_is_decoded_once(digits_dir, decodes):
    dataset = train("digits", data_dir=digits_dir, cache=True)
    decodes.clear()
    # Some images are asked for again before the first time is over.
    take(dataset, 50)
    assert 40 <= len(decodes) < 80
    decodes.clear()
    take(dataset, 50)
    assert not decodes


@pytest.fixture
def jpegs(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(6):
        path = tmp_path / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (40 + number, 50, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path


def test_a_run_of_photos_resumes_with_the_same_bits(jpegs):
    options = {"split": "train", "preprocess": "decode|inception_crop(8)", "batch_size": 4}
    whole = take(train(f"folder:{jpegs}", **options, cache=True), 9)
    for step in (1, 4):
        resumed = take(train(f"folder:{jpegs}", **options, cache=True, start_step=step), 5)
        assert_equal(resumed, whole[step : step + 5])


def test_what_cannot_be_read_is_skipped(jpegs):
    (jpegs / "class0/2.jpg").write_bytes(b"")
    options = {"split": "train", "batch_size": 6, "on_error": "skip"}
    assert_equal(
        take(train(f"folder:{jpegs}", **options, cache=True), 4),
        take(train(f"folder:{jpegs}", **options), 4),
    )


def test_what_does_not_fit_is_refused(jpegs, monkeypatch):
    # 6 images of 42.5 rows on average.
    wanted = 6 * 42.5 * 50 * 3
    monkeypatch.setattr(decoded_images, "free_memory", lambda: wanted / 0.75 * 1.1)
    take(train(f"folder:{jpegs}", split="train", cache=True), 1)
    monkeypatch.setattr(decoded_images, "free_memory", lambda: wanted / 0.75 * 0.9)
    with pytest.raises(UsageError, match=r"^config\.cache: the 6 decoded .* data set\.$"):
        train(f"folder:{jpegs}", split="train", cache=True)


def test_an_operation_before_decode_is_refused(jpegs):
    with pytest.raises(ValueError, match="begin with decode"):
        train(f"folder:{jpegs}", split="train", cache=True, preprocess="resize(8)")


def test_a_container_has_less_memory_than_its_machine(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 90 kB\nMemAvailable: 80 kB\n")
    monkeypatch.setattr("training.data.free_memory._MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr("training.data.free_memory._CGROUP", tmp_path)
    assert free_memory() == 80 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory() == 80 * 1024
    (tmp_path / "memory.max").write_text("9000\n")
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 1500\n")
    assert free_memory() == 5500
    monkeypatch.setattr("training.data.free_memory._MEMINFO", tmp_path / "nowhere")
    assert free_memory() is None
