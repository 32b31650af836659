"""A machine with JAX alone, such as one with a GPU, measures this package on JAX."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("jax", reason="make test-jax installs it")
ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.long
def test_training_step(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['tensorflow'] = None\n")
    options = "--model=ViT-Ti/16 --image_size=16 --mode=train --precision=bfloat16 --alone"
    options += " --batch_size=1 --rounds=1 --seconds=0 --libraries=keras_vit"
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks", "compare_libraries", *options.split()],
        capture_output=True,
        text=True,
        env=os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": paths},
        check=False,
    )
    assert found.returncode == 0, found.stderr
    rows = [line.strip("| ").split(" | ") for line in found.stdout.splitlines() if "XLA" in line]
    assert [row[:3] for row in rows] == [["keras_vit", "bfloat16", "XLA"]]
