"""Memory, threads, and the golden cases: files, models and logits of other implementations."""

import functools
import gc
import inspect
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.golden import golden as weights_and_images
from tests.ram_store import register

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
gc.disable()  # Until the first test: what is imported stays.

# A shell has its background jobs ignore Ctrl-C, and what they start too.
signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers are the parallelism: more threads would only wait for each other.
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


def pytest_generate_tests(metafunc):
    """`@pytest.mark.rows(…, long=[…])` parametrizes a test by its first arguments, row by row."""
    for mark in metafunc.definition.iter_markers("rows"):
        # `pytest.param` keeps its row with its marks.
        row, rows = getattr(mark.args[0], "values", mark.args[0]), [*mark.args]
        for each in mark.kwargs.get("long", ()):
            values = each if isinstance(each, tuple) else (each,)
            rows.append(pytest.param(*values, marks=pytest.mark.long))
        names = [*inspect.signature(metafunc.function).parameters]
        metafunc.parametrize(names[: len(row)] if isinstance(row, tuple) else names[0], rows)


def seed():
    random.seed(0)
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def same_weights_in_every_run():
    with pytest.MonkeyPatch.context() as patch:
        if "tensorflow" in sys.modules:
            # It forgets its kernels with its seed: a tenth of a second for the next model.
            patch.setattr(sys.modules["tensorflow"].random, "set_seed", lambda seed: None)
        seed()


@pytest.fixture(autouse=True, scope="module")
def release_memory():
    """Frees the graphs of a module's models, which Keras would keep to the end of the session."""
    gc.freeze()
    # Graphs are millions of objects that stay: looking for cycles among them takes a tenth.
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    seed()
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
    gc.collect()


@pytest.fixture(autouse=True, scope="session")
def graphs_as_they_are_traced():
    """Leaves out what TensorFlow optimizes of graphs, if `make test` says so."""
    if os.environ.get("GRAPH_PASSES") == "off":
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def loud_environment():
    """Returns the environment of a user, whom TensorFlow tells everything."""
    return {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}


@pytest.fixture
def as_command(tmp_path_factory):
    """Returns a function that makes a file of Python code, which runs as `keras-vit` does."""

    def write(code):
        file = tmp_path_factory.mktemp("bin") / "keras-vit"
        file.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}")
        return str(file)

    return write


@pytest.fixture
def run_command(as_command):
    def run(code, *arguments, **options):
        command = [sys.executable, as_command(code), *arguments]
        options = {"env": loud_environment(), **options}
        return subprocess.run(command, capture_output=True, text=True, **options)

    return run


@pytest.fixture
def printed(capsys):
    """Returns a function that runs `keras-vit` with words, and returns what it prints."""

    def run(*words, status=0, stream="out"):
        from keras_vit.__main__ import main

        capsys.readouterr()
        assert main([*map(str, words)]) == status, words
        return getattr(capsys.readouterr(), stream)

    return run


@pytest.fixture
def refused(printed):
    """Returns a function that runs `keras-vit` with wrong words, and returns the error."""
    return functools.partial(printed, status=2, stream="err")


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    folder, source = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("source")
    for name in ("keras_vit", "training", "export"):
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in ("training", "export"):
        link = source / "keras_vit" / name
        link.unlink()
        link.write_text(f"../{name}")  # as git has it where there are no links
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", folder, source], check=True)
    return folder


@pytest.fixture
def users_folder(tmp_path):
    for name in ("training", "export", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a file of the user')")
    return tmp_path


@pytest.fixture
def run_installed(installed, users_folder):
    """Returns a function that runs Python there with what pip installs."""

    def run(*arguments, path=()):
        paths = {"PYTHONPATH": os.pathsep.join([*map(str, path), str(installed)])}
        options = {"cwd": users_folder, "env": loud_environment() | paths, "timeout": 900}
        command = [sys.executable, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, **options)
        assert not result.returncode, result.stdout[-3000:] + result.stderr[-3000:]
        return result

    return run


@pytest.fixture(scope="session")
def golden():
    return weights_and_images


@pytest.fixture(scope="session")
def cases():
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
    def write(case, folder):
        arrays, is_npz = golden.checkpoint(case), case["format"].endswith("npz")
        path = folder / ("case.npz" if is_npz else "case.safetensors")
        if is_npz:
            np.savez(path, **arrays)
        else:
            save_file(arrays, path)
        return path

    return write


@pytest.fixture(scope="session")
def build_case():
    def build(case, **overrides):
        import keras_vit

        arguments = {name: case[name] for name in ("num_classes", "image_size")} | overrides
        model = case["model"]
        if "resnet_v2" in model:
            return keras_vit.ResNetV2(**model["resnet_v2"] | arguments)
        return keras_vit.VisionTransformer(**model | arguments)

    return build


@pytest.fixture(scope="session")
def _store():
    with pytest.MonkeyPatch.context() as patch:
        yield register(patch)


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
