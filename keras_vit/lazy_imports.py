"""Imports public names when they are used, so that commands answer before Keras is imported.

Files import this project's files at the top. These import some where they are used, as those load
TensorFlow, Keras, JAX or matplotlib:

- `commands`, `command_line` and `training/tasks`, so that --help is answered at once;
- `training/data/opened_dataset.py`, so that missing data is reported at once;
- `export/tflite/quantization.py`, of which commands need the rest;
- `keras_vit/backends/by_backend.py`, `training/engine/__init__.py` and
  `training/inference/image_function.py`, for the backend that runs;
- `training/source_facts.py` and `training/io/remote_stores.py`, for folders of Hugging Face;
- `training/reporting/html_pages.py` and `export/tflite/layer_errors.py`, for figures;
- `benchmarks`, in processes that time imports or measure memory.
"""

import importlib
import importlib.abc
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def runs_command() -> bool:
    """Tells whether the process is `keras-vit COMMAND` or `python -m PACKAGE` of this project.

    Commands answer before Keras is imported, and import it with less noise. Whatever else imports
    this package gets its layers at once, which is how Keras knows them when it loads a model.
    """
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word == "-m":
            package = next(words).split(".")[0]
            if package in ("training", "export", "benchmarks"):  # a folder beside it in a clone
                return pathlib.Path.cwd() == pathlib.Path(__file__).resolve().parents[1]
            return package == "keras_vit"
        if word in ("-W", "-X"):
            next(words)
        elif not word.startswith("-"):
            return pathlib.PurePath(word).name in ("keras-vit", "keras-vit.exe")
    return False


def door(name: str, package: str) -> None:
    """Makes `name`, under which a folder of a clone is imported, the installed `package`.

    Modules in it are refused under that name, as each would exist twice.
    """
    if name != package:
        sys.modules[name] = importlib.import_module(package)
        sys.meta_path.insert(0, _Refusal(name, package))


class _Refusal(importlib.abc.MetaPathFinder):
    def __init__(self, name, package):
        self._name, self._package = name, package

    def find_spec(self, fullname, path=None, target=None):
        top, _, inner = fullname.partition(".")
        if top == self._name and inner and inner != "__main__":
            raise ModuleNotFoundError(
                f"Expected: import {self._package}.{inner}. Received: import {fullname}."
            )


def import_when_used(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a package's `__getattr__`, which imports its public names when they are asked for.

    `modules` are {public name: module}. So --help needs no TensorFlow.
    """

    def getattr_of_package(name: str) -> Any:
        if name in modules:
            return getattr(importlib.import_module(modules[name], package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattr_of_package
