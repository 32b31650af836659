"""One device, eight devices on any mesh and two processes compute the same training."""

import json
import pathlib
import re
import socket

import numpy as np
import pytest

from benchmarks.harness.compiled_program import rematerialized

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")
PROCESSES = pathlib.Path(__file__).parents[2] / "processes"
SCRIPT = PROCESSES / "jax_equivalence.py"
MESHES = ("8x1", "1x8", "2x4")


def environment(devices):
    return {
        "KERAS_BACKEND": "jax",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }


def unoptimized(devices):
    """Returns the environment of a process that compiles in less time, partitioned as ever."""
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    found = environment(devices)
    return found | {"XLA_FLAGS": f"{found['XLA_FLAGS']} {flags}"}


@pytest.mark.long
def test_the_partitioner_gathers_each_weight_once_and_moves_no_activations(launch):
    process = launch(PROCESSES / "jax_partitioner.py", environment=unoptimized(8))
    log, _ = process.communicate(timeout=600)
    assert process.returncode == 0, log
    lines = re.split(r"^(\{\"divided\".*)$", log, flags=re.MULTILINE)
    assert not rematerialized(lines[0]), log
    assert rematerialized(lines[2]), log
    ours, _, unconstrained = map(json.loads, lines[1::2])
    assert set(ours["collectives"]) == {"all-gather", "all-reduce"}
    assert ours["collectives"]["all-gather"] == ours["divided"]
    assert unconstrained["collectives"]["all-to-all"]
    assert unconstrained["collectives"]["all-gather"] > ours["divided"]


@pytest.mark.long
def test_meshes_and_processes_agree(launch, tmp_path):
    with socket.create_server(("localhost", 0)) as server:
        coordinator = f"localhost:{server.getsockname()[1]}"
    files = [tmp_path / name / "out.npz" for name in ("alone", "joined", "other")]
    for file in files:
        file.parent.mkdir()
    alone = launch(SCRIPT, files[0], "one", *MESHES, environment=environment(8))
    log, _ = alone.communicate(timeout=1500)
    assert alone.returncode == 0, log
    assert "rematerialization" not in log
    joined = [
        launch(SCRIPT, file, "2x4", "--", coordinator, 2, index, environment=environment(4))
        for index, file in enumerate(files[1:])
    ]
    for process in joined:
        output, _ = process.communicate(timeout=1500)
        assert process.returncode == 0, output

    alone, worker, other = (np.load(file) for file in files)
    for name in worker.files:
        np.testing.assert_array_equal(worker[name], other[name])
    for case in ("sgd", "adamw", "random", "frozen", "lora"):
        expected = {
            key: alone[f"one/{case}/{key}"]
            for key in ("losses", "count", "evaluation", "weights", "rate")
        }
        assert expected["count"] == 53
        assert expected["losses"][-1] < expected["losses"][0]
        for results, mesh in (*((alone, mesh) for mesh in MESHES), (worker, "2x4")):
            for key, value in expected.items():
                found = results[f"{mesh}/{case}/{key}"]
                np.testing.assert_allclose(found, value, atol=1e-5, err_msg=f"{mesh} {case} {key}")

    # What was saved on one mesh goes on on another as on itself.
    for end in ("random/losses", "random/weights", "adamw/losses", "adamw/weights"):
        moves = [alone[name] for name in alone.files if " to " in name and name.endswith(end)]
        assert len(moves) == 4
        for move in moves[1:]:
            np.testing.assert_allclose(move, moves[0], atol=1e-5, err_msg=end)
