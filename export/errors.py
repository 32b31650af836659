"""The errors of an export."""

import contextlib
import functools
from collections.abc import Iterator

from keras_vit import errors
from keras_vit.training.errors import UsageError


class ExportError(ValueError):
    """A model or artifact cannot be used; the message says what was expected and what to do."""


class RuntimeMissing(ExportError):
    """A runtime is not on this machine; the message is one line that says what to install."""


# Damage shows as any of a dozen errors, depending on which byte has it.
damage_refused = functools.partial(errors.damage_named, kind=ExportError)
imported = functools.partial(errors.imported, kind=RuntimeMissing)


@contextlib.contextmanager
def as_export_errors() -> Iterator[None]:
    """Turns the errors of exported files that evaluation opens too into those of this package."""
    try:
        yield
    except UsageError as error:
        raise RuntimeMissing(str(error)) from error
    except ValueError as error:
        raise (error if isinstance(error, ExportError) else ExportError(str(error))) from error
