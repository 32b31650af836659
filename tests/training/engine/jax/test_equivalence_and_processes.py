import json
import re
import socket
from unittest import mock

import pytest

from benchmarks.tpu_compile import REMATERIALIZED
from keras_vit.training.config import schema
from keras_vit.training.errors import Disagreement
from tests.training.engine.job_tests import *  # noqa: F403
from tests.training.engine.job_tests import STEPS
from tests.training.runs import KILLS, assert_same, finish, kill_at_random, new_addresses, rows

processes = pytest.importorskip(
    "keras_vit.training.engine.jax_processes", reason="make test-jax installs it"
)
KEYS = {"dataset": "digits", "batch_size": 8, "total_steps": 1, "strategy": "sharded"}
# XLA logs what it makes again; a program that is not compiled anew logs nothing.
LOGGING = {"TF_CPP_MIN_LOG_LEVEL": "0", "JAX_ENABLE_COMPILATION_CACHE": "false"}
SHARDED = ("--config.strategy=sharded", "--config.mesh.data=2", "--config.mesh.fsdp=4")


@pytest.fixture
def unoptimized(jax_environment):
    """Returns the environment of a process that compiles in less time, partitioned as ever."""
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    return lambda devices: jax_environment(devices, flags)


@pytest.mark.long
def test_the_partitioner_gathers_each_weight_once_and_moves_no_activations(launch, unoptimized):
    process = launch("jax_partitioner", environment=unoptimized(8) | LOGGING)
    log, _ = process.communicate(timeout=600)
    assert process.returncode == 0, log
    before, ours, between, *_ = re.split(r"^(\{\"divided\".*)$", log, flags=re.MULTILINE)
    assert REMATERIALIZED not in before, log
    assert REMATERIALIZED in between, log  # The log of layouts that clash says so.
    ours = json.loads(ours)
    assert set(ours["collectives"]) == {"all-gather", "all-reduce"}
    assert ours["collectives"]["all-gather"] == ours["divided"]


@pytest.mark.long
def test_meshes_and_processes_agree(all_alike, jax_environment):
    (coordinator,) = new_addresses(1)
    environment = jax_environment(4) | LOGGING
    joined = [(("2x4", "--", coordinator, 2, index), environment) for index in (0, 1)]
    log = all_alike(("8x1", "1x8", "2x4"), jax_environment(8) | LOGGING, "2x4", joined)
    assert "rematerialization" not in log


@pytest.mark.long
@pytest.mark.parametrize("task", ["classifier", "masked"])
def test_a_run_goes_on_on_meshes_and_processes(task, take_the_tour, unoptimized):
    (coordinator,) = new_addresses(1)
    sharded, changes = {"strategy": "sharded"}, {"strategy": "sharded", "mesh": {"fsdp": 2}}
    jobs = [{"coordinator": coordinator, "count": 2, "index": index} for index in range(2)]
    processes = [(changes | {"processes": job}, unoptimized(1)) for job in jobs]
    take_the_tour(task, sharded, processes, unoptimized(2))


@pytest.fixture
def start(launch, train_command, jax_environment):
    def run(workdir, *own):
        options = [STEPS, "--config.strategy=sharded", "--config.processes.count=2"]
        options.append(f"--config.processes.coordinator={new_addresses(1)[0]}")
        options = [[*options, f"--config.processes.index={index}"] for index in (0, 1)]
        words = [[*both, *more] for both, more in zip(options, own or ([], []), strict=True)]
        environment = jax_environment(4)
        return [launch(*train_command(workdir, *each), environment=environment) for each in words]

    return run


_JOIN = """
import json, sys, time
from keras_vit.training.config import schema
from keras_vit.training.engine import jax_processes
job = jax_processes.join(schema.complete(json.loads(sys.argv[1])))
end = time.monotonic() + 60
while not job.came:
    assert time.monotonic() < end
    time.sleep(0.05)
print("came", flush=True)
time.sleep(100)
"""


@pytest.mark.long
@pytest.mark.parametrize("lost", [0, 1])
def test_loss_is_named(lost, launch, jax_environment):
    own = {"coordinator": new_addresses(1)[0], "count": 2}
    configs = [json.dumps(KEYS | {"processes": own | {"index": index}}) for index in (0, 1)]
    jobs = [launch("-c", _JOIN, config, environment=jax_environment()) for config in configs]
    for job in jobs:
        assert any(line == "came\n" for line in job.stdout)  # Its watch has seen the other.
    jobs[lost].kill()
    assert finish(jobs[1 - lost], status=1).startswith(f"error: Lost worker {lost} (")


def test_processes_of_unequal_devices_are_refused_with_their_counts(monkeypatch):
    devices = [mock.Mock(process_index=index) for index in (0, 1, 1, 2)]
    monkeypatch.setattr(processes.jax.distributed, "initialize", lambda **each: None)
    monkeypatch.setattr(processes.jax, "devices", lambda: devices)
    config = schema.complete(KEYS | {"processes": {"coordinator": "localhost:12", "count": 3}})
    counts = r"Received: 1 in process 0, 2 in process 1, 1 in process 2\. CUDA_VISIBLE_DEVICES"
    with pytest.raises(Disagreement, match=counts):
        processes.join(config)


def test_ports_are_bound_to_the_interface_that_the_job_uses(monkeypatch):
    given = []
    monkeypatch.setattr(processes.jax.distributed, "initialize", lambda **each: given.append(each))
    # Another machine's address, as of a service that forwards the port, is none to bind.
    for host, bound in (("localhost", "127.0.0.1"), ("127.0.0.1",) * 2, ("192.0.2.1", "[::]")):
        config = schema.complete(KEYS | {"processes": {"coordinator": f"{host}:12", "count": 2}})
        processes.join(config)
        assert given.pop()["coordinator_bind_address"] == f"{bound}:12"
    monkeypatch.setattr(processes.ctypes, "CDLL", mock.Mock())
    for coordinator in ("localhost", ""):
        job = processes.Job(1, coordinator)
        assert job._server.getsockname()[0] == processes._own_host(coordinator) != "0.0.0.0"
        assert job._server.getsockname()[0].startswith("127.") or not coordinator
        # Who fails alone is gone for the others; who ends with them answers to the last.
        job.leave(together=True)
        socket.create_connection(job._server.getsockname()).close()
        address = job._server.getsockname()
        job.leave(together=False)
        with pytest.raises(OSError):
            socket.create_connection(address, timeout=5)
    assert processes.join(schema.complete(KEYS)) is None  # One process joins nobody.


@pytest.mark.parametrize("kills", KILLS)
def test_killed(kills, launch, train_command, jax_environment, tmp_path):
    def start(workdir):
        return launch(*train_command(workdir, *SHARDED), environment=jax_environment(8))

    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    finish(start(expected))
    kill_at_random(start, workdir, kills)
    finish(start(workdir))
    assert_same(workdir, expected)
    assert rows(workdir) == rows(expected)
