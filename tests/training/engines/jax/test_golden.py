"""The golden trajectories, and the quickstart beside TensorFlow's."""

import pathlib

import numpy as np
import pytest

pytest.importorskip("orbax.checkpoint")
ROOT = pathlib.Path(__file__).parents[4]


def losses(workdir):
    lines = [line.split(",") for line in (workdir / "metrics.csv").read_text().splitlines()]
    return np.array([float(line[lines[0].index("loss")]) for line in lines[1:]])


def test_golden_trajectories(launch, jax_environment):
    test = ROOT / "tests/training/loop/test_golden_trajectories.py"
    process = launch("-m", "pytest", "-p", "no:xdist", test, environment=jax_environment())
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 0, output
    assert "2 passed" in output


@pytest.mark.long
def test_quickstart_follows_tensorflow(launch, jax_environment, finish, tmp_path):
    command = ["-m", "training", f"--config={ROOT}/training/configs/quickstart.py"]
    command += ["--config.total_steps=60", "--config.log_every_steps=1", "--config.eval_split="]
    command += ["--config.optimizer.warmup_steps=10", "--config.steps_per_call=1"]
    for name, environment in (("tensorflow", {}), ("jax", jax_environment())):
        finish(launch(*command, f"--workdir={tmp_path / name}", environment=environment))
    found, expected = losses(tmp_path / "jax"), losses(tmp_path / "tensorflow")
    assert len(found) == 60
    np.testing.assert_allclose(found, expected, rtol=1e-4)
