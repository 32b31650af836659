"""What an installation brings."""

import pathlib
import re
import runpy
from unittest import mock

ROOT = pathlib.Path(__file__).parents[1]
OF_JAX = {"jax", "jaxlib", "libtpu"}


def test_the_default_installation_is_without_jax():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    names = {re.split(r"[=<> ;\[]", line)[0] for line in lines}
    assert "tensorflow" in names
    assert not names & OF_JAX


def test_the_extra_for_benchmarks_brings_the_other_libraries():
    from benchmarks.libraries import LIBRARIES

    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    given = setup.call_args.kwargs
    extras = given["extras_require"]
    listed = [*extras["bench"], *extras["export"], *given["install_requires"]]
    names = {re.split(r"[=<>;\[]", line)[0].replace("-", "_") for line in listed}
    assert {package for _, packages in LIBRARIES.values() for package in packages} <= names


def test_only_what_runs_on_jax_imports_it():
    found = {
        str(path.relative_to(ROOT))
        for package in ("keras_vit", "training", "export")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"^\s*(import|from) jax\b", path.read_text(), re.M)
    }
    engine = {f"training/engine/{name}.py" for name in ("jax", "jax_processes")}
    assert found - engine == {"keras_vit/backends/jax.py"}
