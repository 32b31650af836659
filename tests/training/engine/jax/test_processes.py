import json
from unittest import mock

import pytest

from keras_vit.training.config import schema
from tests.training.engine.job_tests import *  # noqa: F403
from tests.training.engine.job_tests import STEPS
from tests.training.runs import finish, new_addresses

processes = pytest.importorskip(
    "keras_vit.training.engine.jax_processes", reason="make test-jax installs it"
)
KEYS = {"dataset": "digits", "batch_size": 8, "total_steps": 1, "strategy": "sharded"}


@pytest.fixture
def start(launch, train_command, jax_environment):

    def run(workdir, *own):
        options = [STEPS, "--config.strategy=sharded", "--config.processes.count=2"]
        options.append(f"--config.processes.coordinator={new_addresses(1)[0]}")
        return [
            launch(
                *train_command(workdir, *options, f"--config.processes.index={index}", *more),
                environment=jax_environment(4),
            )
            for index, more in enumerate(own or ([], []))
        ]

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
        # Its watch has seen the other.
        assert any(line == "came\n" for line in job.stdout)
    jobs[lost].kill()
    assert finish(jobs[1 - lost], status=1).startswith(f"error: Lost worker {lost} (")


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
    # One process joins nobody.
    assert processes.join(schema.complete(KEYS)) is None
