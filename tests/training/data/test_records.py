import numpy as np
import pytest
import tensorflow as tf

from training.data import tfrecords

LENGTHS = [0, 1, 5, 70_000, 3]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, length in enumerate(LENGTHS):
            writer.write(bytes([number]) * length)
    return path


def test_any_record_is_read_alone(file):
    (offsets,) = tfrecords.offsets([str(file)], [5])
    frame = 16
    assert offsets.tolist() == np.cumsum([0, *(n + frame for n in LENGTHS[:-1])]).tolist()
    read = tf.function(tfrecords.read_record)
    for number in (4, 0, 3, 1):
        found = read(tf.constant(str(file)), tf.constant(offsets[number]))
        assert found.numpy() == bytes([number]) * LENGTHS[number]


def test_a_changed_byte_is_noticed(file):
    data = bytearray(file.read_bytes())
    data[-30] ^= 1  # inside the fourth record
    file.write_bytes(data)
    (offsets,) = tfrecords.offsets([str(file)], [5])
    with pytest.raises(tf.errors.DataLossError):
        tfrecords.read_record(tf.constant(str(file)), tf.constant(offsets[3]))
    assert tfrecords.read_record(tf.constant(str(file)), tf.constant(offsets[1])).numpy() == b"\1"


def test_files_cut_short_are_explained(file):
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(ValueError, match="is cut short"):
        tfrecords.offsets([str(file)], [5])


def test_another_number_of_records_is_explained(file):
    with pytest.raises(ValueError, match=r"Expected 6 records .* Found 5"):
        tfrecords.offsets([str(file)], [6])


def test_offsets_of_large_files_are_kept(file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tfrecords, "_CACHE_FROM_BYTES", 1)
    (first,) = tfrecords.offsets([str(file)], [5])
    (kept,) = (tmp_path / "cache").rglob("*.npy")
    np.testing.assert_array_equal(np.load(kept), first)
    monkeypatch.setattr(tfrecords, "_scan", None)
    np.testing.assert_array_equal(tfrecords.offsets([str(file)], [5])[0], first)
    # A file that has changed is another file.
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(b"new")
    with pytest.raises(TypeError):
        tfrecords.offsets([str(file)], [1])


def test_a_cache_that_cannot_be_written_is_no_error(file, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tfrecords, "_CACHE_FROM_BYTES", 1)
    assert len(tfrecords.offsets([str(file)], [5])[0]) == 5


HUGE = b"{'descr': '<i8', 'fortran_order': False, 'shape': (9999999999999999999999,)}\n"


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"no array", b"\x93NUMPY\x01\x00" + bytes([len(HUGE), 0]) + HUGE]
)
def test_a_damaged_cache_is_written_again(content, file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tfrecords, "_CACHE_FROM_BYTES", 1)
    (first,) = tfrecords.offsets([str(file)], [5])
    (kept,) = (tmp_path / "cache").rglob("*.npy")
    kept.write_bytes(content)
    np.testing.assert_array_equal(tfrecords.offsets([str(file)], [5])[0], first)
    np.testing.assert_array_equal(np.load(kept), first)


def test_the_index_beside_a_file_spares_its_reading(file, monkeypatch):
    (expected,) = tfrecords.offsets([str(file)], [5])
    assert tfrecords.write_index(str(file)) == 5
    monkeypatch.setattr(tfrecords, "_scan", None)
    np.testing.assert_array_equal(tfrecords.offsets([str(file)], [5])[0], expected)


def test_a_file_shorter_than_its_index_says_is_explained(file):
    tfrecords.write_index(str(file))
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=rf"Expected {size} bytes in .* Found {size - 5}. Copy"):
        tfrecords.offsets([str(file)], [5])


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY"])
def test_a_damaged_index_is_named(content, file):
    tfrecords.write_index(str(file))
    (index,) = file.parent.glob("*.offsets.npy")
    index.write_bytes(content)
    with pytest.raises(ValueError, match=r"offsets\.npy, which is damaged. Write it again"):
        tfrecords.offsets([str(file)], [5])
