"""Two real processes of four devices each."""

import time
from unittest import mock

import pytest

from keras_vit.training.config import schema
from tests.training.engine.job_tests import *  # noqa: F403
from tests.training.engine.job_tests import STEPS
from tests.training.runs import new_addresses

processes = pytest.importorskip(
    "keras_vit.training.engine.jax_processes", reason="make test-jax installs it"
)
KEYS = {"dataset": "digits", "batch_size": 8, "total_steps": 1, "strategy": "sharded"}


@pytest.fixture
def start(launch, train_command, jax_environment):
    """Starts both processes of a job in a directory and returns them."""

    def run(workdir, *own):
        coordinator = new_addresses(1)[0]
        return [
            launch(
                *train_command(workdir, STEPS, "--config.strategy=sharded"),
                f"--config.processes.coordinator={coordinator}",
                "--config.processes.count=2",
                f"--config.processes.index={index}",
                *more,
                environment=jax_environment(4),
            )
            for index, more in enumerate(own or ([], []))
        ]

    return run


_JOIN = """
import sys, time
from keras_vit.training.config import schema
from keras_vit.training.engine import jax_processes
given = {"coordinator": sys.argv[1], "count": 2, "index": int(sys.argv[2])}
keys = {"dataset": "digits", "batch_size": 8, "total_steps": 1, "strategy": "sharded"}
keys["processes"] = given
job = jax_processes.join(schema.complete(keys))
end = time.monotonic() + 60
while not job.came:
    assert time.monotonic() < end
    time.sleep(0.05)
open(sys.argv[3], "w").close()
time.sleep(100)
"""


@pytest.mark.long
@pytest.mark.parametrize("lost", [0, 1])
def test_loss_is_named(lost, launch, jax_environment, tmp_path):
    (coordinator,) = new_addresses(1)
    jobs = [
        launch(
            "-c", _JOIN, coordinator, index, tmp_path / str(index), environment=jax_environment()
        )
        for index in (0, 1)
    ]
    # Each writes its file when its watch has seen the other, or ends.
    while len(list(tmp_path.iterdir())) < 2:
        assert all(process.poll() is None for process in jobs)
        time.sleep(0.1)
    jobs[lost].kill()
    output, _ = jobs[1 - lost].communicate(timeout=60)
    assert jobs[1 - lost].returncode == 1
    assert output.strip().splitlines()[-1].startswith(f"error: Lost worker {lost} (")


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
        job.leave(together=False)


def test_one_process_joins_nobody():
    assert processes.join(schema.complete(KEYS)) is None
