import io
import itertools
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.__main__ import main
from keras_vit.training import data
from keras_vit.training.data import records
from keras_vit.training.data.skip_unreadable import ATTEMPTS, SkipCounter, load_or_next
from keras_vit.training.errors import TrainingError
from tests.file_server import serving
from tests.training.data import helpers
from tests.training.data.helpers import evaluate, joined, read_by, take, train

LENGTHS = [0, 1, 5, 70_000, 3]
HUGE = b"{'descr': '<i8', 'fortran_order': False, 'shape': (9999999999999999999999,)}\n"
DAMAGED = (b"", b"no array", b"\x93NUMPY\x01\x00" + bytes([len(HUGE), 0]) + HUGE)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, length in enumerate(LENGTHS):
            writer.write(bytes([number]) * length)
    return path


def offsets(file, length=5):
    return records.offsets([str(file)], [length])[0]


def test_any_record_is_read_alone_and_a_file_that_is_not_whole_is_explained(file):
    frame = 16
    assert offsets(file).tolist() == np.cumsum([0, *(n + frame for n in LENGTHS)]).tolist()
    reader = records.tfrecord_reader(records.Shards([str(file)], [5], [0], [5]), None)
    record = tf.function(reader.record)
    for number in (4, 0, 3, 1):
        assert record(tf.constant(number, tf.int64)).numpy() == bytes([number]) * LENGTHS[number]
    with pytest.raises(ValueError, match=r"Expected 6 records .* Found 5"):
        offsets(file, 6)
    for cut in (2, 10):
        file.write_bytes(file.read_bytes()[:-cut])
        with pytest.raises(ValueError, match="is cut short"):
            offsets(file)


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("split", ["train", "train[50:550]+train[:1]"])
def test_neighbors_are_read_in_stored_order(numbers, monkeypatch, split, remote):
    monkeypatch.setattr(records, "is_remote", lambda path: remote)
    monkeypatch.setattr(records, "_RUN", 100)  # Runs are cut within files of 175 records.
    found = data.open("tfds:numbers", split, numbers)
    alone = tf.data.Dataset.range(found.num_examples).map(found.reader.record)
    expected = list(alone.as_numpy_iterator())
    every = np.arange(found.num_examples)
    for indices in (every, every[every % 150 >= 100], every[:0]):
        streamed = found.reader.stream(indices).as_numpy_iterator()
        assert list(streamed) == [expected[index] for index in indices]


def test_a_damaged_record_costs_its_neighbors_nothing(digits_split, damaged_digits):
    # Evaluation reads no record alone.
    whole = joined(evaluate(read_by(digits_split("train"), record=lambda index: tf.constant(b""))))
    assert whole["counted"].sum() == 1438
    with pytest.raises(tf.errors.DataLossError):
        evaluate(damaged_digits)
    for remote in (False, True):
        split, counter = read_by(damaged_digits, remote=remote), SkipCounter()
        skipping = joined(evaluate(split, on_error="skip", skip_counter=counter))
        assert counter.examples == {"sklearn_digits-train.tfrecord-00000-of-00001__700": 1}
        for key, values in whole.items():
            assert not skipping[key][700].any()
            others = np.arange(len(values)) != 700
            np.testing.assert_array_equal(skipping[key][others], values[others])


@pytest.mark.rows(([4, 7], True), ([10, 11], False), long=[([11], False), ([11, 0, 1], True)])
def test_the_next_example_takes_the_place_and_after_the_last_the_first(damaged, store, tmp_path):
    names = [f"{number % 2}/{number:02d}.jpg" for number in range(12)]
    helpers.write_photos(tmp_path, names, lambda number: np.full((24, 32, 3), 20 * number))
    split = data.open(f"folder:{tmp_path}", "train")
    order = [int(split.example_id(place)[2:-4]) for place in range(12)]
    for length, place in enumerate(damaged):
        file = tmp_path / split.photos[place].path
        file.write_bytes(file.read_bytes()[: 200 * length])
    split, counter = read_by(split, remote=store), SkipCounter()
    skipping = {"on_error": "skip", "skip_counter": counter}
    text = "decode|inception_crop(8)|value_range(-1,1)"
    (batch,) = take(train(split, text, batch_size=12, **skipping), 1)
    levels = np.round((batch["image"][:, 0, 0, 0] + 1) * 127.5 / 20).astype(int)
    # Each that is damaged gives its place to the first after it that is not, with its label.
    assert (levels % 2 == np.argmax(batch["label"], axis=1)).all()
    readable = [place for place in range(12) if place not in damaged]
    following = [min(readable, key=lambda place: (place - one) % 12) for one in damaged]
    assert sorted(levels) == sorted(order[place] for place in readable + following)
    ids = [split.example_id(place) for place in damaged]
    assert set(counter.examples) == set(ids)

    # Evaluation masks them, as blank as what fills its batches, and `load_dataset` leaves them out.
    found = joined(evaluate(split, "decode|resize(8)", batch_size=16, **skipping))
    np.testing.assert_array_equal(found["counted"], [place in readable for place in range(16)])
    for key in ("image", "label"):
        assert not found[key][found["counted"] == 0].any(), key
    kept = data.load_dataset(split.dataset.name, "train", with_ids=True, **skipping)
    found = [one["id"].decode() for one in kept.as_numpy_iterator()]
    assert found == [split.example_id(place) for place in readable]
    with pytest.raises(tf.errors.OpError):
        evaluate(split, "decode|resize(8)")

    def load(index):
        return tf.io.decode_jpeg(split.read(index)["image"])

    counter = SkipCounter()  # One place counts, once, each that it passes over.
    load_or_next(load, tf.constant(damaged[0], tf.int64), split, counter)
    assert counter.examples == dict.fromkeys(ids[: 1 if damaged == [4, 7] else None], 1)


def test_a_pipeline_that_fails_everywhere_raises_its_own_error(digits_split):
    counter, split = SkipCounter(), digits_split("train")
    options = {"batch_size": 2, "on_error": "skip", "skip_counter": counter}
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least that large"):
        take(train(split, "decode|random_crop(999)", **options), 1)
    assert ATTEMPTS == 16 and not counter.examples

    def load(index):
        tf.debugging.assert_greater_equal(index, np.int64(20))
        return index

    # After 16 others an example is found.
    assert load_or_next(load, tf.constant(4, tf.int64), split, counter) == 20
    assert len(counter.examples) == 16
    with pytest.raises(tf.errors.InvalidArgumentError):
        load_or_next(load, tf.constant(3, tf.int64), split, counter)


@pytest.mark.rows(
    ("dataset_info.json", b"175", b"0", r"Expected 0 records in .* Found 175"),
    ("dataset_info.json", b'"numbers"', b'"other"', r"Expected the files that .*/other-train"),
    ("dataset_info.json", b"tfrecord", b"riegeli", r"1\.0\.0 holds riegeli: prepare the data"),
    ("dataset_info.json", b"1.0.0", b"1.0", r"1\.0\.0 is damaged .* Prepare the data set"),
    ("dataset_info.json", b'"175"', b'"-1"', r"1\.0\.0 is damaged: a file of less than no"),
    ("features.json", b"{", b"\xff", r"1\.0\.0 is damaged .* Prepare the data set"),
    ("features.json", b'"label"', b'"x"', r"numbers/1.* and `label` .* Found: .*x"),
    ("label.labels.txt", b"", b"\xff", r"in UTF-8\. Received: .*label\.labels\.txt"),
    ("label.labels.txt", b"", b"crow\nowl\n", r"700 names of classes in .* Received: 2, "),
    ("label.labels.txt", b"", b"crow\n" * 700, r"Received: 700, of which 1 differ"),
)
def test_a_damaged_description_is_refused(file, old, new, message, numbers, tmp_path):
    shutil.copytree(numbers, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "numbers" / "1.0.0" / file
    path.write_bytes(path.read_bytes().replace(old, new, 1) if path.exists() else new)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        list(data.load_dataset("tfds:numbers", "train", data_dir=tmp_path))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_labels_beyond_the_classes_are_never_skipped(on_error, numbers, tmp_path):
    shutil.copytree(numbers, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "numbers" / "1.0.0" / "features.json"
    path.write_text(path.read_text().replace('"700"', '"600"', 1))
    split, counter = data.open("tfds:numbers", "train", tmp_path), SkipCounter()
    settings = {"on_error": on_error, "skip_counter": counter}
    for read in (
        lambda: evaluate(split, **settings),
        lambda: take(train(split, helpers.PLAIN, **settings), 50),
        lambda: list(data.load_dataset("tfds:numbers", "train", data_dir=tmp_path, **settings)),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expected labels below 600"):
            read()
    assert not counter.examples


def test_a_file_without_records_is_passed_over(numbers, tmp_path):
    shutil.copytree(numbers, tmp_path, dirs_exist_ok=True)
    info, file = next(tmp_path.rglob("dataset_info.json")), next(tmp_path.rglob("*00001-of*"))
    info.write_text(info.read_text().replace('"175"', '"0"', 2).replace('"0"', '"175"', 1))
    file.write_bytes(b"")
    assert helpers.ids("tfds:numbers", "train", tmp_path)[175].endswith("00002-of-00004__0")


def saved(array):
    np.save(content := io.BytesIO(), array)
    return content.getvalue()


def test_offsets_of_large_files_are_kept_and_damaged_ones_rewritten(file, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(records, "_CACHE_FROM_BYTES", 1)
    cache.write_text("a file in the way")
    assert len(offsets(file)) == 6
    cache.unlink()
    first = offsets(file)
    (kept,) = cache.rglob("*.npy")
    for damage in (*DAMAGED, saved(first[:-1])):  # The last is as without the size of the file.
        kept.write_bytes(damage)
        np.testing.assert_array_equal(offsets(file), first)
        np.testing.assert_array_equal(np.load(kept), first)
    monkeypatch.setattr(records, "_scan", None)
    np.testing.assert_array_equal(offsets(file), first)
    with tf.io.TFRecordWriter(str(file)) as writer:  # A file that has changed is another file.
        writer.write(b"new")
    with pytest.raises(TypeError):
        offsets(file, 1)


def test_kept_offsets_are_those_of_a_path_a_size_and_a_time(file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_CACHE_FROM_BYTES", 1)
    expected, content = offsets(file), file.read_bytes()
    # The same records in another order, which has the same size.
    frames = [content[start:end] for start, end in itertools.pairwise(expected)]
    shuffled = np.cumsum([0, *map(len, frames[::-1])])
    stamp = file.stat().st_mtime_ns
    other = file.with_name("other.tfrecord")
    for path, time, order in ((other, stamp, shuffled), (file, stamp + 1, shuffled)):
        path.write_bytes(b"".join(frames[::-1]))
        os.utime(path, ns=(time, time))
        np.testing.assert_array_equal(offsets(path), order)
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 3


def test_the_index_beside_a_file_spares_its_reading(file, monkeypatch):
    expected = offsets(file)
    records.write_index([str(file)])
    monkeypatch.setattr(records, "_scan", None)
    np.testing.assert_array_equal(offsets(file), expected)
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=rf"Expected {size} bytes in .* Found {size - 5}. Copy"):
        offsets(file)

    (index,) = file.parent.glob("*.offsets.npy")
    for content in (*DAMAGED, saved([0, *expected[2:3], *expected[2:]])):
        index.write_bytes(content)
        with pytest.raises(ValueError, match=r"offsets\.npy, which is damaged. Write it again"):
            offsets(file)


def test_array_records_hold_equal_examples(number_arrays, numbers, monkeypatch, tmp_path, capsys):
    words, places = ("tfds:numbers", "train[5:270]+train[40%:]"), (number_arrays, numbers)
    ours, theirs = (data.load_dataset(*words, data_dir=each, with_ids=True) for each in places)
    for one, two in zip(ours.as_numpy_iterator(), theirs.as_numpy_iterator(), strict=True):
        np.testing.assert_equal(one | {"id": one["id"].replace(b"array_", b"tf")}, two)

    copy = shutil.copytree(number_arrays, tmp_path / "copy")
    split = data.open("tfds:numbers", "train", copy)
    split.example_id(0)
    os.utime(next(copy.rglob("*train.array_record*")), (1, 1))
    with pytest.raises(TrainingError, match="were replaced while tfds:numbers was read"):
        split.require_unchanged()

    assert main(["data", "index", "tfds:numbers", f"--data_dir={number_arrays}"]) == 2
    assert "holds array_record, which needs no index" in helpers.error_line(capsys)
    files = {file.name: file.read_bytes() for file in number_arrays.rglob("*array_record*")}
    file, index = next(number_arrays.rglob("*train.array_record*")), tf.constant(100, tf.int64)
    (tmp_path / "cut").write_bytes(file.read_bytes()[:1000])
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(files) as server:  # As the bucket of Google's JSON interface.
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", server.url)
        names = f"gs://bucket/tfds/{file.name}", str(file)
        shards = (records.Shards([name], [175], [0], [175]) for name in names)
        record, expected = (records.array_record_reader(each, None).record for each in shards)
        server.requests.clear()
        assert record(index).numpy() == expected(index).numpy()
        assert len(server.requests) <= 2  # One for the index, one for the record.
        several = tf.data.Dataset.range(175)
        found = several.map(record, num_parallel_calls=16).as_numpy_iterator()
        assert list(found) == list(several.map(expected).as_numpy_iterator())
        for name, message in (
            ("gs://bucket/none", r"gs://bucket/none cannot be .*Check the name"),
            ("s3://bucket/a", r"^s3://bucket/a cannot be read: .* of gs:// alone"),
            (str(file), r"Expected 7 records .* Found 175"),
            (str(tmp_path / "cut"), r"cut cannot be read: .* prepare the data set again"),
        ):
            with pytest.raises(ValueError, match=message) as error:
                records.array_record_reader(records.Shards([name], [7], [0], [7]), None)
            assert "\n" not in str(error.value)
