"""Predictions on Ray: the rows of one machine, each once, when a machine dies as well."""

import os
import tempfile

import pytest

from keras_vit.__main__ import main
from tests.other_environments import ROOT
from tests.training.runs import contents

pytest.importorskip("ray", reason="make test-cluster installs it")
pytestmark = pytest.mark.long

DYING = ROOT / "tests" / "training" / "processes" / "dying_node"
STORE_BYTES = 80 * 2**20


@pytest.fixture(autouse=True)
def folder_of_ray(monkeypatch):
    """What Ray leaves is removed; the names of folders of tests are too long for its sockets."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setenv("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", str(STORE_BYTES))
        yield


@pytest.fixture(scope="module")
def command(bird_model, photos):
    options = [str(bird_model), str(photos), "--shard_size=2"]
    return lambda *more: ["-m", "training", "predict", *options, *more]


@pytest.fixture(scope="module")
def expected(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    assert main(["predict", *command(f"--shards={folder}")[3:]]) == 0
    return contents(folder)


def test_a_cluster_on_this_machine(command, expected, tmp_path, launch):
    for written in (8, 0):
        process = launch(*command(f"--shards={tmp_path / 'out'}", "--cluster=local"))
        output, _ = process.communicate(timeout=900)
        assert process.returncode == 0, output
        assert f": {written} written, {8 - written} there already" in output
        assert contents(tmp_path / "out") == expected
        assert ("2 images cannot be read" in output) == (written == 8)


def test_a_node_that_is_killed_in_the_middle(command, expected, tmp_path, launch):
    from ray.cluster_utils import Cluster

    died = tmp_path / "died"

    def node(dies):
        environment = {"PYTHONPATH": f"{DYING}:{ROOT}", "DIED": str(died), "DIES": dies}
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        options = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": STORE_BYTES}
        return options | {"env_vars": os.environ | environment, "include_dashboard": False}

    cluster = Cluster()
    try:
        cluster.add_node(**node("no"))
        cluster.add_node(**node("yes"))
        process = launch(*command(f"--shards={tmp_path / 'out'}", f"--cluster={cluster.address}"))
        output, _ = process.communicate(timeout=900)
    finally:
        cluster.shutdown()
    assert process.returncode == 0, output
    finished, stamp = died.read_text().splitlines()
    assert os.stat(finished).st_mtime_ns == int(stamp)
    assert contents(tmp_path / "out") == expected and "8 written" in output


def test_what_does_not_answer(command, tmp_path, launch):
    process = launch(*command(f"--shards={tmp_path / 'out'}", "--cluster=127.0.0.1:1"))
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 2 and "Nothing answers at 127.0.0.1:1" in output
