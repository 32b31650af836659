"""Checks how this package is installed and started, and imports its names when they are used."""

import importlib
import pathlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

__version__ = "0.1.0"  # setup.py reads it


def warn_of_namesake() -> None:
    """Warns where the distribution `keras-vit`, another person's package, is installed too.

    It installs a folder `keras_vit` as well: the files of one replace those of the other.
    """
    from importlib import metadata  # here, as it takes as long as a command's help

    try:
        other = metadata.distribution("keras-vit")
    except metadata.PackageNotFoundError:
        return
    # A checkout of this package from when it had that name lists none.
    if any(str(file) == "keras_vit/__init__.py" for file in other.files or ()):
        warnings.warn(
            f"Expected keras-vit-16x16 without the distribution keras-vit ({other.version}), "
            "another package that installs a folder keras_vit too: files of one replace those "
            "of the other. Run: pip uninstall keras-vit keras-vit-16x16, then: pip install "
            "keras-vit-16x16",
            stacklevel=2,
        )


def missing_extra(module: str, extra: str, error: ImportError) -> str:
    """Returns the message of a package that an extra of this package's installation brings."""
    return (
        f"Expected the package {module.split('.')[0]}. Received: {error}. Install it: pip install "
        f"'keras-vit-16x16[{extra}]'"
    )


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


def import_when_used(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a package's `__getattr__`, which imports its public names when they are asked for.

    `modules` are {public name: module in the package}. So --help needs no TensorFlow.
    """

    def getattr_of_package(name: str) -> Any:
        if name in modules:
            return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattr_of_package
