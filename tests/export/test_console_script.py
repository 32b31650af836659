"""The command `keras-vit`, as pip installs it, in a folder with the user's own files."""

import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

from keras_vit.installation import warn_of_namesake

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def keras_vit(tmp_path):
    """Runs the script beside files of the user that are called like packages."""
    module, function = re.search(
        r"keras-vit = ([\w.]+):(\w+)", (ROOT / "setup.py").read_text()
    ).groups()
    script = tmp_path / "bin" / "keras-vit"
    script.parent.mkdir()
    script.write_text(f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("training.py", "export.py"):
        (folder / name).write_text("raise SystemExit('a file of the user')")

    def run(*arguments, path=()):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, path), str(ROOT)])}
        return subprocess.run(
            [sys.executable, script, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )

    return run


def test_help_names_commands_as_they_are_called(keras_vit):
    result = keras_vit("--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: keras-vit COMMAND") and "few_shot" in result.stdout
    assert "keras-vit export --help" in result.stdout
    result = keras_vit("train", "--help")
    assert result.stdout.startswith("usage: keras-vit train ") and "python -m" not in result.stdout
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
