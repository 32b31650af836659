"""What pip installs, used in a folder with the user's own `training/` and `export/`."""

import importlib
import os
import re
import subprocess
import sys
import zipfile

import pytest

from keras_vit.installation import runs_command, warn_of_namesake
from keras_vit.version import __version__
from tests.tiny_vit import tiny_vit


@pytest.fixture
def folder(tmp_path):
    """A folder of the user's whose names are those of the packages in the repository."""
    for name in ("training", "export", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a file of the user')")
    return tmp_path


@pytest.fixture
def keras_vit(wheel, folder):
    """Runs the installed command."""

    def run(*arguments, path=()):
        return subprocess.run(
            [sys.executable, wheel / "keras-vit", *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, path), str(wheel)])},
            capture_output=True,
            text=True,
        )

    return run


def test_one_package_is_installed_with_all_its_files(wheel):
    (file,) = wheel.glob("*.whl")
    names = zipfile.ZipFile(file).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"keras_vit"}
    data = {name for name in names if name.startswith("keras_vit") and not name.endswith(".py")}
    assert {"keras_vit/py.typed", "keras_vit/imagenet_classes.txt"} < data
    assert "keras_vit/export/web/page/index.html" in data


def test_models_load_as_soon_as_the_package_is_imported(wheel, folder):
    code = """
import keras_vit, keras
from keras_vit import export, training
print(keras.saving.load_model("m.keras").name, training.load_dataset, export.to_hub)
"""
    tiny_vit().save(folder / "m.keras")
    environment = os.environ | {"PYTHONPATH": str(wheel)}
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True)


@pytest.mark.parametrize(
    ("words", "is_command"),
    [
        (["-X", "dev", "/usr/bin/keras-vit", "train"], True),
        (["C:/keras-vit.exe"], True),
        (["keras-vit.py"], False),
        (["-m", "keras_vit.export", "hub"], True),
        (["-W", "error", "-m", "training"], True),
        (["-m", "keras_vit_extras"], False),
        (["-c", "import keras_vit"], False),
        ([], False),
    ],
)
def test_commands_alone_import_names_when_asked(words, is_command, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    assert runs_command() == is_command


def test_a_package_of_the_users_is_no_command(folder, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "training.fit"])
    monkeypatch.chdir(folder)
    assert not runs_command()


def test_a_command_offers_every_name(wheel, folder):
    code = "import keras_vit; print(keras_vit.__version__, 'predict' in keras_vit.__all__)"
    (folder / "keras-vit").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(wheel)}
    shown = subprocess.check_output(
        [sys.executable, "keras-vit"], cwd=folder, env=environment, text=True
    )
    assert shown == f"{__version__} True\n"


def test_help_names_commands_as_they_are_called(keras_vit):
    result = keras_vit("--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: keras-vit COMMAND") and "few_shot" in result.stdout
    assert "keras-vit export --help" in result.stdout
    result = keras_vit("train", "--help")
    assert result.stdout.startswith("usage: keras-vit train ")
    result = keras_vit("export", "--help")
    assert result.stdout.startswith("usage: keras-vit export COMMAND SOURCE")
    result = keras_vit("export", "npz", "--help")
    assert result.stdout.startswith("usage: keras-vit export npz ")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "error: Expected a command, one of train, .* See keras-vit --help"),
        (
            ["export", "torch"],
            "error: Expected a command, one of hub, .* See keras-vit export --help",
        ),
        (["--debug", "export", "torch"], "error: Expected a command, one of hub, "),
        (["--workdir=run"], "required: --config. See keras-vit train --help"),
    ],
)
def test_bad_use(keras_vit, arguments, message):
    result = keras_vit(*arguments)
    assert result.returncode == 2
    assert re.search(message, result.stderr)


@pytest.fixture
def namesake(tmp_path):
    """A folder on the path where the other package of the same import name is installed."""
    metadata = tmp_path / "site" / "keras_vit-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: keras-vit\nVersion: 1.2\n")
    (metadata / "RECORD").write_text(
        "keras_vit/__init__.py,,\nkeras_vit-1.2.dist-info/METADATA,,\n"
    )
    return metadata.parent


def test_the_package_of_the_same_import_name_is_warned_of(namesake, monkeypatch, keras_vit):
    monkeypatch.syspath_prepend(namesake)
    importlib.invalidate_caches()
    with pytest.warns(UserWarning, match=r"keras-vit \(1\.2\).* pip uninstall keras-vit keras-vit"):
        warn_of_namesake()
    assert "pip uninstall keras-vit" in keras_vit("--help", path=[namesake]).stderr


def test_alone_it_is_silent(recwarn):
    warn_of_namesake()
    assert not recwarn.list
