"""Keras's own loop, inside Keras's own distribution, trains our models as one device does."""

import json
import pathlib

import numpy as np
import pytest

pytest.importorskip("jax", reason="make test-jax installs it")
SCRIPT = pathlib.Path(__file__).parents[2] / "processes" / "jax_fit.py"


def test_fit_inside_keras_distribution(launch, jax_environment, finish):
    losses = json.loads(finish(launch(SCRIPT, environment=jax_environment(8))))
    assert losses["alone"][-1] < losses["alone"][0]
    for name in ("data", "model"):
        np.testing.assert_allclose(losses[name], losses["alone"], atol=1e-5)
