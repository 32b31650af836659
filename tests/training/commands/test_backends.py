"""A backend that cannot be used ends every program with one line, before Keras is imported."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PROGRAMS = {
    "keras_vit.training": ("--config=quickstart", "--workdir=run"),
    "keras_vit.export": ("hub", "run", "--output=module"),
    "benchmarks": ("startup",),
}
ONE_IS_MISSING = """
import sys
package, program = sys.argv[1:3]
del sys.argv[1:3]
sys.modules[package] = None
import importlib
sys.exit(importlib.import_module(f"{program}.__main__").main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "program, missing, backend",
    [
        # No package is missing: another backend.
        ("keras_vit.training", "", "JAX"),
        ("keras_vit.export", "", "torch"),
        ("benchmarks", "", "torch"),
        *((program, "tensorflow", "tensorflow") for program in PROGRAMS),
        ("keras_vit.training", "jax", "jax"),
        # JAX's images are read with TensorFlow.
        ("keras_vit.export", "tensorflow", "jax"),
    ],
)
def test_a_backend_that_cannot_be_used(program, missing, backend, as_command, tmp_path):
    packages, cwd = tmp_path / "packages", tmp_path / "work"
    for folder in (packages, cwd):
        folder.mkdir()
    if missing and missing != backend:
        # Where JAX is not installed: it is looked for, and not yet imported.
        (packages / f"{backend}.py").touch()
    start = [as_command(ONE_IS_MISSING), missing] if missing else ["-m"]
    environment = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{packages}",
        "KERAS_BACKEND": backend,
        "TFDS_DATA_DIR": str(cwd / "nothing"),
    }
    result = subprocess.run(
        [sys.executable, *start, program, *PROGRAMS[program]],
        # Beside a clone, `-m benchmarks` would be a package of the user's.
        cwd=ROOT if program == "benchmarks" and not missing else cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    error = result.stderr
    assert result.returncode == 2 and error.count("\n") == 1 and not list(cwd.iterdir()), error
    if missing:
        assert error.startswith(f"error: Expected the package {missing}, which ")
        assert ": pip install " in error
        assert ("reads the images" if missing != backend else "(tensorflow or jax)") in error
    else:
        expected = "error: KERAS_BACKEND: expected tensorflow or jax."
        assert error == f"{expected} Received: {backend!r}.\n"
