import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def launch():
    """Starts Python processes that see this repository, and ends those that are left over."""
    processes = []

    def start(*arguments, environment=None, **options):
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=ROOT,
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
            | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def cluster():
    """Returns the environments of the workers of a new cluster on this machine."""

    def environments(workers):
        sockets = [socket.create_server(("localhost", 0)) for _ in range(workers)]
        addresses = [f"localhost:{server.getsockname()[1]}" for server in sockets]
        for server in sockets:
            server.close()
        return [
            {
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": addresses},
                        "task": {"type": "worker", "index": index},
                    }
                )
            }
            for index in range(workers)
        ]

    return environments
