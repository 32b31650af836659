"""Downloads against a server on this machine."""

import base64
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import DownloadError, cache_directory, list_of_published_weights
from keras_vit.checkpoints.download import download
from tests.file_server import serving

DATA = np.random.default_rng(0).bytes(3_000_000)


def md5(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def address(server):
    return f"{server.url}/model.npz"


@pytest.fixture
def server():
    with serving(DATA) as server:
        yield server


def test_download_and_cache(server, tmp_path, capsys):
    server.checksum = md5(DATA)
    path = download(address(server), tmp_path / "cache" / "model.npz")
    assert path.read_bytes() == DATA
    assert os.listdir(path.parent) == ["model.npz"]
    assert "3000000" in capsys.readouterr().out.replace("/", "")
    assert download(address(server), path) == path
    assert server.requests == [None]


def test_interrupted_download_is_resumed(server, tmp_path):
    server.cut_after = 1_200_000
    path, size_range = tmp_path / "model.npz", (3_000_000, 3_000_000)
    with pytest.raises(DownloadError, match="cannot be downloaded"):
        download(address(server), path, size_range=size_range)
    assert not path.exists()
    server.cut_after = None
    server.checksum = md5(DATA)
    download(address(server), path, size_range=size_range)
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
        download(address(server), tmp_path / "model.npz")
    server.cut_after = None
    vars(server).update(change)
    assert download(address(server), tmp_path / "model.npz").read_bytes() == content
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
        download(address(server), tmp_path / "model.npz", size_range=size_range)
    assert not (tmp_path / "model.npz").exists()
    assert not (size_range and os.listdir(tmp_path))


def test_several_processes_share_a_download(server, tmp_path):
    path = tmp_path / "model.npz"
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(download, [address(server)] * 4, [path] * 4)) == [path] * 4
    assert path.read_bytes() == DATA
    assert os.listdir(tmp_path) == ["model.npz"]


def test_no_such_file_and_no_network(server, tmp_path):
    server.content = {}
    for url, reason in (
        (address(server), "the server answers 404"),
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
        monkeypatch.setattr(list_of_published_weights, place, server.url)
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
