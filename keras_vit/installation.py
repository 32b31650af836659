"""How this package is installed and started."""

import pathlib
import sys
import warnings
from importlib import metadata


def warn_of_namesake() -> None:
    """Warns where the distribution `keras-vit`, another person's package, is installed too.

    It installs a folder `keras_vit` as well: the files of one replace those of the other.
    """
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


def runs_command() -> bool:
    """Tells whether the process is `keras-vit COMMAND` or `python -m PACKAGE` of this project.

    Commands answer before Keras is imported, and import it with less noise. Whatever else imports
    this package gets its layers at once, which is how Keras knows them when it loads a model.
    """
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word == "-m":
            return next(words).split(".")[0] in ("keras_vit", "training", "export", "benchmarks")
        if word in ("-W", "-X"):
            next(words)
        elif not word.startswith("-"):
            return pathlib.PurePath(word).stem == "keras-vit"
    return False
