"""The golden trajectories, on JAX."""

import pathlib

import pytest

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")
ROOT = pathlib.Path(__file__).parents[4]


def test_golden_trajectories(launch, jax_environment):
    test = ROOT / "tests/training/loop/test_golden_trajectories.py"
    process = launch("-m", "pytest", "-p", "no:xdist", test, environment=jax_environment())
    output, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, output
    assert "2 passed" in output
