"""One device, eight devices on any mesh and two processes compute the same training."""

import pathlib
import socket

import numpy as np
import pytest

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")
SCRIPT = pathlib.Path(__file__).parents[2] / "processes" / "jax_equivalence.py"
MESHES = ("8x1", "1x8", "2x4")


def environment(devices):
    return {
        "KERAS_BACKEND": "jax",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }


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
                # Key biases have no gradient but rounding, which Adam turns into steps.
                if (case, key) != ("adamw", "weights"):
                    found = results[f"{mesh}/{case}/{key}"]
                    np.testing.assert_allclose(found, value, atol=1e-5, err_msg=f"{mesh} {key}")

    # What was saved on one mesh goes on on another as on itself.
    moves = [alone[name] for name in alone.files if " to " in name]
    assert len(moves) == 4
    for move in moves[1:]:
        np.testing.assert_allclose(move, moves[0], atol=1e-5)
