"""An exported file in the runtime that is asked for, or in the one for files like it."""

import importlib
import os
import pathlib

import keras

from export.errors import ExportError
from export.verification.runtimes.runtime import Runtime
from export.verification.runtimes.runtime_table import FORMATS, RUNTIMES


def open_artifact(
    path: str | os.PathLike, model: keras.Model, runtime: str | None = None
) -> tuple[str, Runtime]:
    """Opens an exported file or directory.

    Args:
        path: a file or directory of one of `FORMATS`.
        model: the model that it came from.
        runtime: key of `RUNTIMES`; None takes the default of the file's format.

    Returns:
        (the runtime's name, the runtime).

    Raises:
        FileNotFoundError: if there is nothing.
        ExportError: if it is damaged or of another kind, or the runtime opens other files.
        RuntimeMissing: if the runtime is not on this machine.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"Expected an exported model. There is nothing at {path}.")
    format = next((each.name for each in FORMATS if each.fits(path)), None)
    if format is None:
        *names, last = (each.name for each in FORMATS)
        raise ExportError(f"Expected {', '.join(names)} or {last}. Received: {path}")
    names = [name for name, row in RUNTIMES.items() if row.format == format]
    name = names[0] if runtime is None else runtime
    if name not in names:
        raise ExportError(
            f"Expected a runtime of {format}: {', '.join(names)}. Received: {runtime!r}"
        )
    row = RUNTIMES[name]
    module = importlib.import_module(f"export.verification.runtimes.{row.module}")
    return name, getattr(module, row.name)(path, model)
