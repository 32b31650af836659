"""Predictions on Ray: the rows of one machine, each once, when a machine dies as well."""

import os
import pathlib
import tempfile

import keras
import numpy as np
import pytest

from tests.tiny_vit import tiny_vit
from training.commands import predict

pytest.importorskip("ray", reason="make test-cluster installs it")
pytestmark = pytest.mark.long

ROOT = pathlib.Path(__file__).parents[2]
DYING = pathlib.Path(__file__).parent / "processes" / "dying_node"
STORE_BYTES = 80 * 2**20


@pytest.fixture(autouse=True)
def folder_of_ray(monkeypatch):
    """What Ray leaves is removed; the names of folders of tests are too long for its sockets."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setenv("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", str(STORE_BYTES))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    keras.utils.set_random_seed(0)
    model = tiny_vit(patch_size=8, num_classes=3)
    model.get_layer("head").kernel.assign(keras.random.normal((16, 3), seed=1))
    file = tmp_path_factory.mktemp("model") / "m.keras"
    model.save(file)
    return file


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(16):
        pixels = rng.integers(0, 256, (20, 24, 3)).astype(np.uint8)
        keras.utils.save_img(folder / f"{number:02d}.png", pixels)
    (folder / "03.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def expected(model, photos, tmp_path_factory):
    """The files that one machine writes."""
    folder = tmp_path_factory.mktemp("expected")
    assert predict.main([str(model), str(photos), f"--shards={folder}", "--shard_size=2"]) == 0
    return contents(folder)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def command(model, photos, folder, cluster):
    options = [f"--shards={folder}", "--shard_size=2", f"--cluster={cluster}"]
    return ["-m", "training", "predict", str(model), str(photos), *options]


def test_a_cluster_on_this_machine(model, photos, expected, tmp_path, launch):
    arguments = command(model, photos, tmp_path / "out", "local")
    for written in (8, 0):
        process = launch(*arguments)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        assert f"Wrote {written} shards" in output
        assert contents(tmp_path / "out") == expected
    assert ("1 images cannot be read" in output) == (written == 8)


def test_a_node_that_is_killed_in_the_middle(model, photos, expected, tmp_path, launch):
    from ray.cluster_utils import Cluster

    died = tmp_path / "died"

    def node(dies):
        paths = f"{DYING}:{ROOT}"
        environment = {"PYTHONPATH": paths, "DIED": str(died), "DIES": dies}
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        options = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": STORE_BYTES}
        return options | {"env_vars": os.environ | environment, "include_dashboard": False}

    cluster = Cluster()
    try:
        cluster.add_node(**node("no"))
        cluster.add_node(**node("yes"))
        process = launch(*command(model, photos, tmp_path / "out", cluster.address))
        output, _ = process.communicate(timeout=300)
    finally:
        cluster.shutdown()
    assert process.returncode == 0, output
    finished, stamp = died.read_text().splitlines()
    assert os.stat(finished).st_mtime_ns == int(stamp)
    assert contents(tmp_path / "out") == expected
    assert "Wrote 8 shards" in output


def test_what_does_not_answer(model, photos, tmp_path, launch):
    process = launch(*command(model, photos, tmp_path / "out", "127.0.0.1:1"))
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "Nothing answers at 127.0.0.1:1" in output
