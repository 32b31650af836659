import base64
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save

import keras_vit
from keras_vit.checkpoints import DownloadError, cache_directory, published_weights
from keras_vit.checkpoints.download import download
from tests.file_server import serving
from tests.keras_vit.small import assert_logits, forward, make_images, make_vit

DATA = np.random.default_rng(0).bytes(3_000_000)
SIZE = "has 3000000 bytes, and the published file has"


def md5(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


@pytest.fixture
def server():
    with serving(DATA) as server:
        server.file = f"{server.url}/model.npz"
        yield server


def test_download_and_cache_which_several_processes_share(server, tmp_path, capsys):
    server.checksum = md5(DATA)
    path = download(server.file, tmp_path / "cache" / "model.npz")
    assert path.read_bytes() == DATA and os.listdir(path.parent) == ["model.npz"]
    assert "3000000" in capsys.readouterr().out.replace("/", "")
    assert download(server.file, path) == path and server.requests == [None]
    paths = [path.with_name("other.npz")] * 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(download, [server.file] * 4, paths)) == paths
    assert paths[0].read_bytes() == DATA
    assert set(os.listdir(path.parent)) == {"model.npz", "other.npz"}


@pytest.mark.rows(
    ({"checksum": md5(DATA)}, DATA),
    ({"content": DATA[::-1], "etag": '"2"'}, DATA[::-1]),
    ({"ranges": False}, DATA),
)
def test_interrupted_downloads_are_resumed(change, content, server, tmp_path):
    server.cut_after = 1_200_000
    path, size_range = tmp_path / "model.npz", (3_000_000, 3_000_000)
    with pytest.raises(DownloadError, match="cannot be downloaded"):
        download(server.file, path, size_range=size_range)
    assert not path.exists()
    server.cut_after = None
    vars(server).update(change)
    assert download(server.file, path, size_range=size_range).read_bytes() == content
    assert server.requests[:2] == [None, None]
    if "etag" in change:
        assert len(server.requests) == 2
    else:
        assert 0 < int(server.requests[2].removeprefix("bytes=").rstrip("-")) <= 1_200_000
        assert os.listdir(tmp_path) == ["model.npz"]


@pytest.mark.rows(
    ({"checksum": md5(DATA[1:])}, None, "checksum"),
    ({"checksum": "A"}, None, "checksum"),
    # The server's announcement is enough: nothing of the file is downloaded.
    *(({}, sizes, SIZE) for sizes in ((3_000_001, 4_000_000), (1, 2_999_999), (10**7, None))),
    ({"content": b""}, None, "empty"),
)
def test_another_file_than_announced_is_not_kept(change, size_range, message, server, tmp_path):
    vars(server).update(change)
    with pytest.raises(DownloadError, match=message):
        download(server.file, tmp_path / "model.npz", size_range=size_range)
    assert not (tmp_path / "model.npz").exists() and not (size_range and os.listdir(tmp_path))


def test_no_such_file_and_no_network(server, tmp_path):
    server.content = {}
    closed = ("http://127.0.0.1:9/model.npz", "refused")
    for url, reason in ((server.file, "the server answers 404"), closed):
        with pytest.raises(DownloadError) as error:
            download(url, tmp_path / "model.npz", timeout=5)
        assert f"{url} cannot be downloaded: " in str(error.value)
        assert reason in str(error.value)
        assert f"put it at {tmp_path / 'model.npz'}" in str(error.value)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"file is a file\. Name a directory"):
        download(server.file, tmp_path / "file" / "model.npz")


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(published_weights, "BUCKET", server.url)
    monkeypatch.setattr(published_weights, "HUB", server.url)
    return server


def test_weights_by_name(bucket, tmp_path):
    keras_vit.save_checkpoint(make_vit(representation_size=16), tmp_path / "served.npz")
    bucket.content = (tmp_path / "served.npz").read_bytes()
    small = {"hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 2}
    small |= {"num_classes": None, "image_size": 16}
    for _ in range(2):
        model = keras_vit.create_model("ViT-B/4", weights="imagenet21k/ViT-B_16", **small)
    features = (forward(m, make_images()) for m in (model, make_vit(num_classes=None)))
    np.testing.assert_allclose(*features, atol=1e-5)
    assert bucket.requests == [None]
    cached = tmp_path / "keras" / "keras_vit" / "imagenet21k" / "ViT-B_16.npz"
    assert cache_directory() in cached.parents and cached.exists()
    keras_vit.load_checkpoint(make_vit(representation_size=16), "imagenet21k/ViT-B_16")


@pytest.mark.filterwarnings("error::UserWarning")
def test_the_hubs_weights_by_name(bucket, cases, golden, build_case, monkeypatch):
    """Normalization comes from the table: the file is alone in the cache."""
    arrays, listed = golden.checkpoint(cases["deit"]), published_weights
    bucket.content = save(arrays)
    facts = {"path": "timm/tiny/resolve/main/model.safetensors", "model": "ViT-B/16"}
    facts |= {"arguments": {"gelu": "erf", "num_heads": 4}, **listed.IMAGENET}
    facts["parameters"] = sum(array.size for array in arrays.values())

    def load(changes, **overrides):
        monkeypatch.setitem(listed.TABLE, "timm/tiny", listed.Published(**facts | changes))
        model = build_case(cases["deit"], **overrides)
        keras_vit.load_checkpoint(model, "timm/tiny")
        return model

    with pytest.raises(DownloadError, match="the published file has 4000000 to 5048576"):
        load({"parameters": 1_000_000})
    assert_logits(load({}), cases["deit"])
    assert (cache_directory() / "timm" / "tiny.safetensors").exists()
    with pytest.warns(UserWarning, match="under CC-BY-NC-4.0"):
        load({"license": "CC-BY-NC-4.0", "flexible": True}, patch_size=8)
