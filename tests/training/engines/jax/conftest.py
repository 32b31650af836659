import pathlib
import signal
import socket
import time

import pytest


def pytest_collection_modifyitems(items):
    """Gives several meshes time to compile one after the other on a slow machine."""
    here = pathlib.Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(2400))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Where processes keep what they compile, so that the next one need not."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def jax_environment(compiled):
    """Returns the environment of a process with so many simulated devices."""

    def environment(devices=1):
        return {
            "KERAS_BACKEND": "jax",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            # Threads, in which simulated devices wait for one another: as many as cores deadlock.
            "NPROC": "16",
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

    return environment


@pytest.fixture
def joined():
    """Returns the options of the processes of a new job on this machine."""

    def options(count):
        with socket.create_server(("localhost", 0)) as server:
            port = server.getsockname()[1]
        return [
            [
                "--config.strategy=sharded",
                f"--config.processes.coordinator=localhost:{port}",
                f"--config.processes.count={count}",
                f"--config.processes.index={index}",
            ]
            for index in range(count)
        ]

    return options


@pytest.fixture
def wait_for():
    """Waits until a checkpoint of a run is there."""

    def wait(workdir, step, *processes):
        end = time.monotonic() + 1500
        while not (workdir / "checkpoints" / f"checkpoint-{step}").exists():
            for process in processes:
                assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.002)

    return wait


@pytest.fixture
def finish():
    """Waits for a process and returns its last line, after checking how it ended."""

    def end(process, status=0):
        output, _ = process.communicate(timeout=1500)
        assert process.returncode == status, output
        return output.strip().splitlines()[-1]

    return end


@pytest.fixture
def kill():
    def end(process):
        process.kill()
        assert process.wait() == -signal.SIGKILL

    return end


@pytest.fixture
def last_state():
    """Returns a function that reads {name: array} of the last checkpoint of a run."""
    checkpoints = pytest.importorskip(
        "training.engines.jax.training_checkpoints",
        reason="make test-jax installs it",
    )

    def read(workdir):
        folder = pathlib.Path(workdir) / "checkpoints"
        parts = checkpoints.read_arrays(folder, checkpoints.steps(folder)[-1])
        return {f"{part}/{name}": array for part, a in parts.items() for name, array in a.items()}

    return read
