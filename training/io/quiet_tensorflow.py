"""Starting TensorFlow without its start-up chatter."""

import contextlib
import importlib.util
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

from training.errors import UsageError
from training.io.quick_imports import quick_imports

_BACKENDS = {"tensorflow": "tensorflow", "jax": "'keras-vit-16x16[jax]'"}

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

    Raises:
        UsageError: if it is not installed, or for what `check_backend` refuses.
    """
    from absl import logging

    check_backend()
    _require("tensorflow", "reads the images, with every KERAS_BACKEND")
    with quiet_start(), quick_imports():
        import tensorflow as tf

        tf.config.list_physical_devices()
    logging.set_verbosity(logging.ERROR)
    return tf


def check_backend() -> None:
    """Checks `KERAS_BACKEND` before Keras is imported, which fails with a long traceback.

    Raises:
        UsageError: if it names neither tensorflow nor jax, or what is not installed.
    """
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend not in _BACKENDS:
        raise UsageError(
            f"KERAS_BACKEND: expected {' or '.join(_BACKENDS)}. Received: {backend!r}."
        )
    _require(backend, f"is what KERAS_BACKEND={backend} computes with")


def _require(package, role):
    if importlib.util.find_spec(package) is None:
        raise UsageError(
            f"Expected the package {package}, which {role} (tensorflow or jax). It is not "
            f"installed: pip install {_BACKENDS[package]}"
        )
