"""Meshes and processes compute the same training, also in turns."""

import json
import pathlib
import re

import pytest

from benchmarks.tpu_compile import REMATERIALIZED
from tests.training.runs import new_addresses

pytest.importorskip("jax", reason="make test-jax installs it")
pytestmark = pytest.mark.long
PROCESSES = pathlib.Path(__file__).parents[2] / "processes"


@pytest.fixture
def unoptimized(jax_environment):
    """Returns the environment of a process that compiles in less time, partitioned as ever."""
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    return lambda devices: jax_environment(devices, flags)


# XLA logs what it makes again; a program that is not compiled anew logs nothing.
LOGGING = {"TF_CPP_MIN_LOG_LEVEL": "0", "JAX_ENABLE_COMPILATION_CACHE": "false"}


def test_the_partitioner_gathers_each_weight_once_and_moves_no_activations(launch, unoptimized):
    script = PROCESSES / "jax_partitioner.py"
    process = launch(script, environment=unoptimized(8) | LOGGING)
    log, _ = process.communicate(timeout=600)
    assert process.returncode == 0, log
    before, ours, between, *_ = re.split(r"^(\{\"divided\".*)$", log, flags=re.MULTILINE)
    assert REMATERIALIZED not in before, log
    # The log of layouts that clash says so.
    assert REMATERIALIZED in between, log
    ours = json.loads(ours)
    assert set(ours["collectives"]) == {"all-gather", "all-reduce"}
    assert ours["collectives"]["all-gather"] == ours["divided"]


def test_meshes_and_processes_agree(all_alike, jax_environment):
    (coordinator,) = new_addresses(1)
    joined = [
        (("2x4", "--", coordinator, 2, index), jax_environment(4) | LOGGING) for index in (0, 1)
    ]
    log = all_alike(("8x1", "1x8", "2x4"), jax_environment(8) | LOGGING, "2x4", joined)
    assert "rematerialization" not in log


@pytest.mark.parametrize("task", ["classifier", "masked"])
def test_a_run_goes_on_on_meshes_and_processes(task, take_the_tour, unoptimized):
    (coordinator,) = new_addresses(1)
    sharded = {"strategy": "sharded"}
    changes = sharded | {"mesh": {"fsdp": 2}}
    jobs = [{"coordinator": coordinator, "count": 2, "index": index} for index in range(2)]
    processes = [(changes | {"processes": job}, unoptimized(1)) for job in jobs]
    take_the_tour(task, sharded, processes, unoptimized(2))
