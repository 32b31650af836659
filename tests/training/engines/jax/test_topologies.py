"""A run with dropout or masks that goes on elsewhere ends where one that stayed does."""

import socket

import pytest

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")


@pytest.mark.long
@pytest.mark.parametrize("task", ["classifier", "masked"])
def test_meshes_and_processes(task, take_the_tour, jax_environment):
    with socket.create_server(("localhost", 0)) as server:
        coordinator = f"localhost:{server.getsockname()[1]}"
    processes = [
        (
            {
                "strategy": "sharded",
                "mesh": {"fsdp": 2},
                "processes": {"coordinator": coordinator, "count": 2, "index": index},
            },
            jax_environment(1),
        )
        for index in range(2)
    ]
    take_the_tour(task, {"strategy": "sharded"}, processes, jax_environment(2))
