"""A backend that cannot be used ends every program with one line, before Keras is imported."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
COMMANDS = {
    "training": ("--config=quickstart", "--workdir=run"),
    "export": ("hub", "run", "--output=module"),
    "benchmarks": ("startup",),
}
MODULES = {
    "training": "keras_vit.training.__main__",
    "export": "keras_vit.export.__main__",
    "benchmarks": "benchmarks.__main__",
}
ONE_IS_MISSING = """
import sys
package, program = sys.argv[1:3]
del sys.argv[1:3]
sys.modules[package] = None
import importlib
sys.exit(importlib.import_module(program).main(sys.argv[1:]))
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


@pytest.mark.parametrize(
    "program, backend", [("training", "JAX"), *((program, "torch") for program in COMMANDS)]
)
def test_another_backend(program, backend, tmp_path):
    # Beside a clone, `-m benchmarks` would be a package of the user's.
    of_clone = program == "benchmarks"
    name, cwd = (program, ROOT) if of_clone else (f"keras_vit.{program}", tmp_path)
    error = error_of("-m", name, *COMMANDS[program], cwd=cwd, backend=backend)
    assert error == f"error: KERAS_BACKEND: expected tensorflow or jax. Received: {backend!r}.\n"


@pytest.mark.parametrize(
    "program, package", [("training", "jax"), *((program, "tensorflow") for program in COMMANDS)]
)
def test_a_backend_that_is_not_installed(program, package, as_command, tmp_path):
    arguments = [as_command(ONE_IS_MISSING), package, MODULES[program], *COMMANDS[program]]
    error = error_of(*arguments, cwd=tmp_path, backend=package)
    assert error.startswith(f"error: Expected the package {package}, which ")
    assert "(tensorflow or jax)" in error and ": pip install " in error


@pytest.mark.parametrize("program", ["training", "export"])
def test_jax_reads_images_with_tensorflow(program, as_command, tmp_path):
    packages, cwd = tmp_path / "packages", tmp_path / "work"
    for folder in (packages, cwd):
        folder.mkdir()
    # Where JAX is not installed: it is looked for, and not yet imported.
    (packages / "jax.py").touch()
    script = as_command(ONE_IS_MISSING)
    arguments = [script, "tensorflow", MODULES[program], *COMMANDS[program]]
    error = error_of(*arguments, cwd=cwd, backend="jax", packages=[packages])
    assert "Expected the package tensorflow, which reads the images" in error
