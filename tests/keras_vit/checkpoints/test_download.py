"""Downloads against a server on this machine."""

import base64
import contextlib
import hashlib
import http.server
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import DownloadError, cache_directory, list_of_published_weights
from keras_vit.checkpoints.download import download

DATA = np.random.default_rng(0).bytes(3_000_000)


def md5(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` and counts; the test says how it misbehaves."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = DATA
        self.etag = '"1"'
        self.checksum = None
        self.cut_after = None
        self.ranges = True
        self.requests = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/model.npz"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.requests.append(asked)
        if self.path.endswith("missing.npz"):
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        body = server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", server.etag)
        if server.checksum is not None:
            self.send_header("x-goog-hash", "crc32c=AAAAAA==")
            self.send_header("x-goog-hash", f"md5={server.checksum}")
        self.end_headers()
        if server.cut_after is not None:
            body = body[: server.cut_after]
        # The client may have seen all that it wanted to know.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_download_and_cache(server, tmp_path, capsys):
    server.checksum = md5(DATA)
    path = download(server.url, tmp_path / "cache" / "model.npz")
    assert path.read_bytes() == DATA
    assert os.listdir(path.parent) == ["model.npz"]
    assert "3000000" in capsys.readouterr().out.replace("/", "")
    assert download(server.url, path) == path
    assert server.requests == [None]


def test_interrupted_download_is_resumed(server, tmp_path):
    server.cut_after = 1_200_000
    path, size_range = tmp_path / "model.npz", (3_000_000, 3_000_000)
    with pytest.raises(DownloadError, match="cannot be downloaded"):
        download(server.url, path, size_range=size_range)
    assert not path.exists()
    server.cut_after = None
    server.checksum = md5(DATA)
    download(server.url, path, size_range=size_range)
    assert path.read_bytes() == DATA
    assert os.listdir(tmp_path) == ["model.npz"]
    assert server.requests[0:2] == [None, None]
    resumed = int(server.requests[2].removeprefix("bytes=").rstrip("-"))
    assert 0 < resumed <= 1_200_000


@pytest.mark.parametrize(
    ("change", "content"),
    [({"content": DATA[::-1], "etag": '"2"'}, DATA[::-1]), ({"ranges": False}, DATA)],
)
def test_changed_files_and_servers_without_ranges_start_again(change, content, server, tmp_path):
    server.cut_after = 1_200_000
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "model.npz")
    server.cut_after = None
    vars(server).update(change)
    assert download(server.url, tmp_path / "model.npz").read_bytes() == content
    assert (len(server.requests) == 2) == ("etag" in change)


SIZE = "has 3000000 bytes, and the published file has"


@pytest.mark.parametrize(
    ("change", "size_range", "message"),
    [
        ({"checksum": md5(DATA[1:])}, None, "checksum"),
        ({"checksum": "A"}, None, "checksum"),
        # The server's announcement is enough: nothing of the file is downloaded.
        *(({}, sizes, SIZE) for sizes in ((3_000_001, 4_000_000), (1, 2_999_999), (10**7, None))),
        ({"content": b""}, None, "empty"),
    ],
)
def test_another_file_than_announced_is_not_kept(change, size_range, message, server, tmp_path):
    vars(server).update(change)
    with pytest.raises(DownloadError, match=message):
        download(server.url, tmp_path / "model.npz", size_range=size_range)
    assert not (tmp_path / "model.npz").exists()
    assert not (size_range and os.listdir(tmp_path))


def test_several_processes_share_a_download(server, tmp_path):
    path = tmp_path / "model.npz"
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(download, [server.url] * 4, [path] * 4)) == [path] * 4
    assert path.read_bytes() == DATA
    assert os.listdir(tmp_path) == ["model.npz"]


def test_no_such_file_and_no_network(server, tmp_path):
    missing = server.url.replace("model", "missing")
    for url, reason in (
        (missing, "the server answers 404"),
        ("http://127.0.0.1:9/model.npz", "refused"),
    ):
        with pytest.raises(DownloadError) as error:
            download(url, tmp_path / "model.npz", timeout=5)
        assert f"{url} cannot be downloaded: " in str(error.value)
        assert reason in str(error.value)
        assert f"put it at {tmp_path / 'model.npz'}" in str(error.value)
    assert os.listdir(tmp_path) == []


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """Points the published names at the server and the cache at a folder of the test."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    for place in ("BUCKET", "HUB"):
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(list_of_published_weights, place, url)
    return server


def test_weights_by_name(bucket, make_vit, random_images, forward, tmp_path):
    keras_vit.save_checkpoint(make_vit(representation_size=16), tmp_path / "served.npz")
    bucket.content = (tmp_path / "served.npz").read_bytes()
    small = {"hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 2}
    for _ in range(2):
        model = keras_vit.create_model(
            "ViT-B/4", num_classes=None, image_size=16, weights="imagenet21k/ViT-B_16", **small
        )
    expected, images = make_vit(num_classes=None), random_images()
    np.testing.assert_allclose(forward(model, images), forward(expected, images), atol=1e-5)
    assert bucket.requests == [None]
    cached = tmp_path / "keras" / "keras_vit" / "imagenet21k" / "ViT-B_16.npz"
    assert cache_directory() in cached.parents
    assert cached.exists()
    keras_vit.load_checkpoint(make_vit(representation_size=16), "imagenet21k/ViT-B_16")


@pytest.fixture
def hub_row(bucket, cases, golden, monkeypatch, tmp_path):
    """Serves the file of a golden case as one of the Hub; returns a function of further facts."""
    arrays = golden.checkpoint(cases["deit"])
    save_file(arrays, tmp_path / "served.safetensors")
    bucket.content = (tmp_path / "served.safetensors").read_bytes()
    facts = {
        "path": "timm/tiny/resolve/main/model.safetensors",
        "model": "ViT-B/16",
        "arguments": {"gelu": "erf", "num_heads": 4},
        "parameters": sum(array.size for array in arrays.values()),
        **list_of_published_weights.IMAGENET,
    }

    def add(**changes):
        row = list_of_published_weights.Published(**{**facts, **changes})
        monkeypatch.setitem(list_of_published_weights.TABLE, "timm/tiny", row)

    return add


@pytest.mark.filterwarnings("error")
def test_the_hubs_weights_by_name(hub_row, cases, build_case, assert_logits):
    """Normalization comes from the table: the file is alone in the cache."""
    hub_row()
    model = build_case(cases["deit"])
    keras_vit.load_checkpoint(model, "timm/tiny")
    assert (cache_directory() / "timm" / "tiny.safetensors").exists()
    assert_logits(model, cases["deit"])


def test_the_hubs_file_of_another_size_license_or_patch(hub_row, cases, build_case):
    hub_row(parameters=1_000_000)
    with pytest.raises(DownloadError, match="the published file has 4000000 to 5048576"):
        keras_vit.load_checkpoint(build_case(cases["deit"]), "timm/tiny")
    hub_row(license="CC-BY-NC-4.0", flexible=True)
    with pytest.warns(UserWarning, match="under CC-BY-NC-4.0"):
        keras_vit.load_checkpoint(build_case(cases["deit"], patch_size=8), "timm/tiny")
