"""The errors of an export."""

import functools
import importlib
import types

from keras_vit.errors import damage_named, missing_extra


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


# Damage shows as any of a dozen errors, depending on which byte has it.
damage_refused = functools.partial(damage_named, kind=ExportError)
