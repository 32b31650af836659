import pathlib

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
    def environment(devices=1, flags=""):
        return {
            "KERAS_BACKEND": "jax",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} {flags}",
            # Threads, in which simulated devices wait for one another: as many as cores deadlock.
            "NPROC": "16",
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

    return environment
