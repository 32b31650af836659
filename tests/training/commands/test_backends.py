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


def error_of(*arguments, cwd, backend, packages=()):
    path = os.pathsep.join(map(str, (ROOT, *packages)))
    nothing_prepared = {"TFDS_DATA_DIR": str(cwd / "nothing")}
    environment = os.environ | {"PYTHONPATH": path, "KERAS_BACKEND": backend} | nothing_prepared
    result = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1 and (cwd == ROOT or not list(cwd.iterdir()))
    return result.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_backend(program, tmp_path):
    # Beside a clone, `-m benchmarks` would be a package of the user's.
    cwd = ROOT if program == "benchmarks" else tmp_path
    backend = "JAX" if program == "keras_vit.training" else "torch"
    error = error_of("-m", program, *PROGRAMS[program], cwd=cwd, backend=backend)
    assert error == f"error: KERAS_BACKEND: expected tensorflow or jax. Received: {backend!r}.\n"


@pytest.mark.parametrize(
    "program, package, backend",
    [
        *((program, "tensorflow", "tensorflow") for program in PROGRAMS),
        ("keras_vit.training", "jax", "jax"),
        # JAX's images are read with TensorFlow.
        ("keras_vit.export", "tensorflow", "jax"),
    ],
)
def test_a_package_that_is_not_installed(program, package, backend, as_command, tmp_path):
    packages, cwd = tmp_path / "packages", tmp_path / "work"
    for folder in (packages, cwd):
        folder.mkdir()
    if package != backend:
        # Where JAX is not installed: it is looked for, and not yet imported.
        (packages / f"{backend}.py").touch()
    arguments = [as_command(ONE_IS_MISSING), package, program, *PROGRAMS[program]]
    error = error_of(*arguments, cwd=cwd, backend=backend, packages=[packages])
    assert error.startswith(f"error: Expected the package {package}, which ")
    assert ": pip install " in error
    assert ("reads the images" if package != backend else "(tensorflow or jax)") in error
