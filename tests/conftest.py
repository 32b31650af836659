"""Memory, threads, and the golden cases: files, models and logits of other implementations."""

import gc
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.ram_store import register

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers are the parallelism: more threads would only wait for each other.
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


@pytest.fixture(autouse=True, scope="module")
def release_memory():
    """Frees the graphs of a module's models, which Keras would keep to the end of the session."""
    # What was imported stays: collections, Keras's own among them, need not walk through it.
    gc.freeze()
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
    gc.collect()


@pytest.fixture
def as_command(tmp_path_factory):
    """Returns a function that makes a file of Python code, which runs as `keras-vit` does."""

    def write(code):
        file = tmp_path_factory.mktemp("bin") / "keras-vit"
        file.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}")
        return str(file)

    return write


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """A folder with the wheel, its packages unpacked, and the script `keras-vit`."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("keras_vit", "training", "export"):
        shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True)
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, folder / "source", "--wheel-dir", folder], check=True)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
        (names,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        points = archive.read(names).decode()
    module, function = re.search(r"keras-vit = ([\w.]+):(\w+)", points).groups()
    script = f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    (folder / "keras-vit").write_text(script)
    return folder


@pytest.fixture(scope="session")
def golden():
    """The module that makes the weights and images of the golden cases."""
    spec = importlib.util.spec_from_file_location("golden", GOLDEN / "golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def cases():
    """The golden cases by name."""
    files = ("logits.json", "published.json", "layouts.json")
    return {n: c for file in files for n, c in json.loads((GOLDEN / file).read_text()).items()}


@pytest.fixture(scope="session")
def load_case():
    """Returns a function that loads the file of a golden case as its reference saw images."""

    def load(model, case, path, **arguments):
        import keras_vit

        if not case["format"].endswith("npz"):
            half = [0.5, 0.5, 0.5]
            arguments = {"mean": case.get("mean", half), "std": case.get("std", half), **arguments}
        keras_vit.load_checkpoint(model, path, **arguments)

    return load


@pytest.fixture(scope="session")
def write_case(golden):
    """Returns a function that writes the checkpoint of a golden case into a folder."""

    def write(case, folder):
        arrays = golden.checkpoint(case)
        if case["format"].endswith("npz"):
            path = folder / "case.npz"
            np.savez(path, **arrays)
        else:
            from safetensors.numpy import save_file

            path = folder / "case.safetensors"
            save_file(arrays, path)
        return path

    return write


@pytest.fixture(scope="session")
def build_case():
    """Returns a function that builds the model of a golden case."""

    def build(case, **overrides):
        import keras_vit

        arguments = {"num_classes": case["num_classes"], "image_size": case["image_size"]}
        model = case["model"]
        if "resnet_v2" in model:
            return keras_vit.ResNetV2(**{**model["resnet_v2"], **arguments, **overrides})
        return keras_vit.VisionTransformer(**{**model, **arguments, **overrides})

    return build


@pytest.fixture(scope="session")
def _store():
    """Makes `ram://` a store that `etils.epath` knows."""
    patch = pytest.MonkeyPatch()
    yield register(patch)
    patch.undo()


@pytest.fixture(scope="session")
def ram(_store):
    """Returns a function that names a new bucket of a store in memory."""
    numbers = itertools.count()
    return lambda: f"ram://bucket{next(numbers)}"


@pytest.fixture
def failing_store(_store, monkeypatch):
    """The store of `ram`, to be made to fail; nobody waits between attempts."""
    from keras_vit.training.io import paths

    monkeypatch.setattr(paths, "FIRST_WAIT", 0.0)
    _store.reset()
    yield _store
    _store.reset()
