"""ArrayRecord files are read as TFRecord files are: the same examples under the same ids."""

import contextlib
import http.server
import pathlib
import re
import threading
import urllib.parse

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.training import data
from keras_vit.training.commands.data import main
from keras_vit.training.data import prepare
from keras_vit.training.data.records import Shards, array_record_reader
from tests.training.data.helpers import error_line

pytest.importorskip("array_record")


@pytest.fixture(scope="module")
def array_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("array_record")
    tfds.disable_progress_bar()
    tfds.dataset_builders.store_as_tfds_dataset(
        "sklearn_digits",
        "1.0.0",
        tfds.features.FeaturesDict(prepare.digits_features()),
        prepare.digits_examples(),
        data_dir=folder,
        file_format="array_record",
    )
    assert list(folder.rglob("*array_record*"))
    return folder


@pytest.mark.parametrize("split", ["train", "train[10%:95%]", "test[:7]+train[:3]"])
def test_the_same_examples(array_dir, digits_dir, split):
    ours, theirs = (
        list(data.load_dataset("digits", split, data_dir=folder, with_ids=True))
        for folder in (array_dir, digits_dir)
    )
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one["image"], two["image"])
        assert int(one["label"]) == int(two["label"])
        assert one["id"].numpy().replace(b"array_record", b"tfrecord") == two["id"].numpy()


@pytest.fixture
def bucket(array_dir, monkeypatch):
    """Serves the files as the bucket of Google's JSON interface; returns its requests' ranges."""
    files = {file.name: file.read_bytes() for file in array_dir.rglob("*array_record*")}
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self):
            # A reader that wants no more of a file hangs up.
            with contextlib.suppress(ConnectionError):
                super().handle()

        def do_GET(self):
            name = urllib.parse.unquote(self.path.partition("?")[0]).rpartition("/")[2]
            if name not in files:
                self.send_error(404)
                return
            content = files[name]
            asked.append(self.headers["Range"])
            first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", asked[-1]).groups()
            begin = int(first) if first else max(0, len(content) - int(last))
            end = int(last) + 1 if first and last else len(content)
            part = content[begin:end]
            self.send_response(206)
            self.send_header(
                "Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(content)}"
            )
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", endpoint)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield asked
        server.shutdown()


def test_the_same_records_in_a_bucket(array_dir, bucket):
    (file,) = array_dir.rglob("*train.array_record*")
    rows = [1438], [0], [1438]
    record = array_record_reader(Shards([f"gs://bucket/tfds/{file.name}"], *rows), None).record
    expected = array_record_reader(Shards([str(file)], *rows), None).record
    index = tf.constant(700, tf.int64)
    bucket.clear()
    assert record(index).numpy() == expected(index).numpy()
    # One for the index, one for the record.
    assert len(bucket) <= 2
    several = tf.data.Dataset.range(200)
    found = several.map(record, num_parallel_calls=16).as_numpy_iterator()
    assert list(found) == list(several.map(expected).as_numpy_iterator())


def test_what_cannot_be_read_or_indexed_is_explained(array_dir, tmp_path, bucket, capsys):
    assert main(["index", "tfds:sklearn_digits", f"--data_dir={array_dir}"]) == 2
    assert "holds array_record, which needs no index" in error_line(capsys)
    with pytest.raises(ValueError, match=r"gs://bucket/none cannot be .*Check the name") as error:
        array_record_reader(Shards(["gs://bucket/none"], [7], [0], [7]), None)
    assert "\n" not in str(error.value)
    (file,) = map(str, array_dir.rglob("*train.array_record*"))
    with pytest.raises(ValueError, match=r"Expected 7 records .* Found 1438"):
        array_record_reader(Shards([file], [7], [0], [7]), None)
    with pytest.raises(ValueError, match=r"^s3://bucket/a.* cannot be read: .* of gs:// alone"):
        array_record_reader(Shards(["s3://bucket/a.array_record"], [7], [0], [7]), None)
    (tmp_path / "cut").write_bytes(pathlib.Path(file).read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"cut cannot be read: .* prepare the data set again"):
        array_record_reader(Shards([str(tmp_path / "cut")], [7], [0], [7]), None)
