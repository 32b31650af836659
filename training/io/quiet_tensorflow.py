"""Starting TensorFlow without its start-up chatter."""

import contextlib
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

from training.io.quick_imports import quick_imports

# What TensorFlow's libraries print before any setting of theirs can silence them.
CHATTER = re.compile(
    rb"^(WARNING: All log messages before absl::InitializeLog|[IW]0000 |"
    rb"To enable the following instructions|E0000 .*(cuda_|cudart_)|"
    rb"INFO: Created TensorFlow Lite|.*pkg_resources)"
)


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Holds back what the process prints to standard error, and drops the known chatter.

    For imports and the start of an interpreter alone: native libraries write to
    the file descriptor, so it is redirected for the whole process. Lines that are
    not chatter are printed at the end, also after an error.

    Examples:
        >>> with quiet_start():
        ...     import tensorflow as tf
    """
    # What it logs as an error later, such as of a processor without AVX-512, is none; what fails
    # raises.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr: Any = sys.__stderr__
    try:
        descriptor = stderr.fileno()
    except (AttributeError, OSError, ValueError):
        yield
        return
    stderr.flush()
    saved = os.dup(descriptor)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), descriptor)
        try:
            yield
        finally:
            stderr.flush()
            os.dup2(saved, descriptor)
            os.close(saved)
            held.seek(0)
            for line in held:
                if not CHATTER.match(line):
                    os.write(descriptor, line)


def import_tensorflow() -> types.ModuleType:
    """Returns the `tensorflow` module, imported and with its devices found, quietly.

    Data sets that are opened later are quiet too: of what is logged by absl, as TensorFlow's
    packages do, only errors are printed.
    """
    from absl import logging

    with quiet_start(), quick_imports():
        import tensorflow as tf

        tf.config.list_physical_devices()
    logging.set_verbosity(logging.ERROR)
    return tf
