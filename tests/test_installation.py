import importlib
import os
import re
import runpy
import subprocess
import sys
from unittest import mock

import pytest

from benchmarks.libraries import LIBRARIES
from keras_vit import training
from keras_vit.lazy_imports import runs_command
from keras_vit.version import __version__, warn_of_namesake
from tests.other_environments import ROOT
from tests.tiny_vit import tiny_vit


@pytest.fixture
def keras_vit(installed, run_installed):
    return lambda *words, **settings: run_installed(installed / "bin/keras-vit", *words, **settings)


def test_one_package_is_installed_with_all_its_files(installed):
    names = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert names == {"keras_vit", "bin"}
    pages = ("export/web/page/index.html", "training/reporting/page/page.html")
    for name in ("py.typed", "photos/imagenet_classes.txt", *pages):
        assert (installed / "keras_vit" / name).is_file()


@pytest.mark.long
def test_models_load_as_soon_as_the_package_is_imported(run_installed, users_folder):
    model, recipe = tiny_vit(), {"total_steps": 2}
    model.compile(training.build_optimizer(recipe), training.build_loss("sigmoid"))
    model.save(users_folder / "m.keras")
    imports = "import keras_vit, keras, sys; assert 'keras_vit.training' not in sys.modules; "
    imports += "from keras_vit import export, training"
    loaded = 'keras.saving.load_model("m.keras").loss.name'
    layer = 'keras.saving.get_registered_object("keras_vit>HubLayer").call'
    run_installed("-c", f"{imports}; print({loaded}, {layer}, training.train, export.to_hub)")


@pytest.mark.rows(
    (["-X", "dev", "/usr/bin/keras-vit", "train"], True),
    (["C:/keras-vit.exe"], True),
    (["keras-vit.py"], False),
    (["-m", "keras_vit.export", "hub"], True),
    (["-W", "error", "-m", "training"], True),
    (["-m", "keras_vit_extras"], False),
    (["-c", "import keras_vit"], False),
    ([], False),
)
def test_commands_alone_import_names_when_asked(words, is_command, users_folder, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    assert runs_command() == is_command
    monkeypatch.chdir(users_folder)  # where `training` is a package of the user's
    assert runs_command() == (is_command and "training" not in words)


def test_folders_of_a_clone_are_doors_to_the_one_package():
    code = """
import export, training, keras_vit
import keras_vit.export, keras_vit.training.data
assert training is keras_vit.training and export is keras_vit.export
from training import data
assert data is keras_vit.training.data and training.train is keras_vit.training.train
try:
    import training.data.sets.splits
except ImportError as error:
    print(error)"""
    options = {"cwd": ROOT, "env": os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}, "text": True}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, **options)
    assert not found.returncode, found.stderr[-2000:]
    expected = "Expected: import keras_vit.training.data. Received: import training.data.\n"
    assert found.stdout == expected


@pytest.mark.parametrize("is_command", [False, True])
def test_what_the_package_lacks_is_named(is_command, monkeypatch):
    package = importlib.import_module("keras_vit")
    monkeypatch.setattr(package, "runs_command", lambda: is_command)
    assert package.inference_function.__name__ == "inference_function"
    # As `hasattr` and `copy` ask; a command alone takes modules that were not imported for it.
    for name in ("__wrapped__", "nothing")[: 1 if is_command else 2]:
        with pytest.raises(AttributeError, match=f"module 'keras_vit' has no attribute '{name}'"):
            getattr(package, name)
    if is_command:
        monkeypatch.delattr(package, "variants")
        assert package.variants is sys.modules["keras_vit.variants"]


@pytest.mark.long
def test_a_command_offers_every_name(run_installed, users_folder):
    code = "import keras_vit; print(keras_vit.__version__, 'predict' in keras_vit.__all__)"
    (users_folder / "keras-vit").write_text(code)
    assert run_installed("keras-vit").stdout == f"{__version__} True\n"


def test_the_package_of_the_same_name_is_warned_of(tmp_path, monkeypatch, keras_vit, recwarn):
    warn_of_namesake()
    assert not recwarn.list  # alone it is silent
    metadata = tmp_path / "site" / "keras_vit-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: keras-vit\nVersion: 1.2\n")
    (metadata / "RECORD").write_text(f"keras_vit/__init__.py,,\n{metadata.name}/METADATA,,\n")
    monkeypatch.syspath_prepend(metadata.parent)
    importlib.invalidate_caches()
    with pytest.warns(UserWarning, match=r"keras-vit \(1\.2\).* pip uninstall keras-vit keras-vit"):
        warn_of_namesake()
    shown = keras_vit("--help", path=[metadata.parent])
    assert "pip uninstall keras-vit" in shown.stderr
    assert shown.stdout.startswith("usage: keras-vit COMMAND")


def names_of(requirements):
    return {re.split(r"[=<> ;\[]", line)[0].replace("-", "_") for line in requirements}


def test_jax_is_not_installed_by_default_and_imported_by_its_engine_alone():
    names = names_of((ROOT / "requirements.lock").read_text().splitlines())
    assert "tensorflow" in names and not names & {"jax", "jaxlib", "libtpu"}
    found = {
        str(path.relative_to(ROOT))
        for package in ("keras_vit", "training", "export")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"^\s*(import|from) jax\b", path.read_text(), re.M)
    }
    engine = {f"training/engine/{name}.py" for name in ("jax", "jax_mesh", "jax_processes")}
    assert found - engine == {"keras_vit/backends/jax.py"}


def test_the_extra_for_benchmarks_brings_the_other_libraries():
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    given = setup.call_args.kwargs
    extras = given["extras_require"]
    names = names_of([*extras["bench"], *extras["export"], *given["install_requires"]])
    assert {package for _, packages in LIBRARIES.values() for package in packages} <= names
