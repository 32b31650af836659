"""A run with dropout or masks that goes on elsewhere ends where one that stayed does."""

import socket

import pytest

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")


@pytest.fixture
def environment(jax_environment):
    """Returns the environment of a process whose programs are compiled in less time."""

    def make(devices):
        flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        found = jax_environment(devices)
        return found | {"XLA_FLAGS": f"{found['XLA_FLAGS']} {flags}"}

    return make


@pytest.mark.long
@pytest.mark.parametrize("task", ["classifier", "masked"])
def test_meshes_and_processes(task, take_the_tour, environment):
    with socket.create_server(("localhost", 0)) as server:
        coordinator = f"localhost:{server.getsockname()[1]}"
    processes = [
        (
            {
                "strategy": "sharded",
                "mesh": {"fsdp": 2},
                "processes": {"coordinator": coordinator, "count": 2, "index": index},
            },
            environment(1),
        )
        for index in range(2)
    ]
    take_the_tour(task, {"strategy": "sharded"}, processes, environment(2))
