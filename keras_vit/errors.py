"""The messages of damaged files and of packages that are not installed."""

import contextlib
import importlib
import types
import warnings
from collections.abc import Iterator


def imported(module: str, extra: str, kind: type[Exception] = ValueError) -> types.ModuleType:
    """Returns a module that an extra of this package's installation brings.

    Raises a `kind`, which says what to install, if it cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            # TensorFlow Hub warns of what it imports itself.
            warnings.filterwarnings("ignore", "pkg_resources is deprecated")
            return importlib.import_module(module)
    except ImportError as error:
        raise kind(
            f"Expected the package {module.split('.')[0]}. Received: {error}. Install it: pip "
            f"install 'keras-vit-16x16[{extra}]'"
        ) from error


@contextlib.contextmanager
def damage_named(
    failure: str, advice: str = "Export the model again.", kind: type[ValueError] = ValueError
) -> Iterator[None]:
    """Turns what a library raises for a damaged file, any error of any library, into a `kind`.

    Its message begins with `failure`, which names the file, and ends with what to do next. An error
    of a `kind` of its own is raised as it is.
    """
    try:
        yield
    except Exception as error:
        if kind is not ValueError and isinstance(error, kind):
            raise
        name = "" if type(error) is ValueError is kind else f"{type(error).__name__}: "
        reason = " ".join(str(error).split())[:500]
        raise kind(f"{failure}: {name}{reason}. {advice}") from error
