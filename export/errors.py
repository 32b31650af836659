"""The errors of an export."""

import contextlib
import importlib
import types
from collections.abc import Iterator

from keras_vit.installation import missing_extra


class ExportError(ValueError):
    """A model or artifact cannot be used; the message says what was expected and what to do."""


class RuntimeMissing(ExportError):
    """A runtime is not on this machine; the message is one line that says what to install."""


def imported(module: str, extra: str) -> types.ModuleType:
    """Returns a module that an extra of this package's installation brings.

    Raises:
        RuntimeMissing: if it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RuntimeMissing(missing_extra(module, extra, error)) from error


@contextlib.contextmanager
def damage_refused(failure: str, advice: str = "Export the model again.") -> Iterator[None]:
    """Turns the errors that a library raises for a damaged file into an `ExportError`.

    Damage shows as any of a dozen errors, depending on which byte has it.

    Args:
        failure: the beginning of its message, which names the file.
        advice: what to do next.
    """
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:500]
        raise ExportError(f"{failure}: {type(error).__name__}: {reason}. {advice}") from error
