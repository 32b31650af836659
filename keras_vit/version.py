"""The version, and a warning of the other package of this name."""

import warnings

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
