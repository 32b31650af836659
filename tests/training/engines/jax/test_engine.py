"""What an update computes does not depend on how its batch is divided."""

import json
import pathlib

import numpy as np
import pytest

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")
SCRIPT = pathlib.Path(__file__).parents[2] / "processes" / "jax_engine.py"


def test_masks_and_empty_splits(launch, finish, jax_environment, tmp_path):
    said = json.loads(finish(launch(SCRIPT, tmp_path, environment=jax_environment(8))))
    expected, *others = said["norms"].values()
    np.testing.assert_allclose(others, expected, rtol=1e-5)
    assert said["empty"] == "ValueError: Expected a split with examples. Received: none."
    assert said["older"]["0.0"] == []
    (line,) = said["older"]["0.3"]
    assert line.startswith("The state of step 0 was saved by an earlier version, which drew other")
