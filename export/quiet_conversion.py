"""Keeps converters and quantizers of models off the terminal."""

import contextlib
import io
import logging
import threading
import warnings
from collections.abc import Iterator

# The log and standard output are of the whole process.
_CONVERTING = threading.Lock()


@contextlib.contextmanager
def quiet_conversion(ignored: type[Warning]) -> Iterator[None]:
    """Drops progress bars, reports, the log up to warnings, and warnings of the kind `ignored`."""
    sink, handler = io.StringIO(), logging.NullHandler()
    with (
        _CONVERTING,
        contextlib.redirect_stdout(sink),
        contextlib.redirect_stderr(sink),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ignored)
        disabled = logging.root.manager.disable
        logging.root.addHandler(handler)  # or a converter adds one that stays
        logging.disable(max(disabled, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(disabled)
            logging.root.removeHandler(handler)
