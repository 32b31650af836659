import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from training import command_line

ROOT = pathlib.Path(__file__).parents[2]
TINY = pathlib.Path(__file__).parent / "processes" / "tiny.py"


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


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A folder with the embedded digits, prepared once."""
    from training.data import digits

    folder = tmp_path_factory.mktemp("data")
    digits.prepare(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny(data_dir):
    """Returns the config of `processes/tiny.py` with the values given changed."""

    def config(**changes):
        result = command_line.load_config(str(TINY))
        result.data_dir = data_dir
        result.update(changes)
        return result

    return config


@pytest.fixture
def train_command(data_dir):
    """Returns the arguments of Python that train `processes/tiny.py` in a folder."""

    def arguments(workdir, *more):
        options = [f"--config={TINY}", f"--workdir={workdir}", f"--config.data_dir={data_dir}"]
        return ["-m", "training", *options, *more]

    return arguments


@pytest.fixture
def final_state():
    """Returns a function that reads {name: array} of the last checkpoint of a run."""

    def read(workdir):
        import tensorflow as tf

        reader = tf.train.load_checkpoint(str(pathlib.Path(workdir) / "checkpoints"))
        names = reader.get_variable_to_shape_map()
        # How often a run was saved is no part of its state.
        kept = [name for name in names if not name.startswith(("_", "save_counter"))]
        return {name: reader.get_tensor(name) for name in kept}

    return read


@pytest.fixture
def assert_same():
    """Asserts that two states are equal, bit for bit."""

    def check(state, other):
        assert state.keys() == other.keys()
        for name in state:
            np.testing.assert_array_equal(state[name], other[name], err_msg=name)

    return check
