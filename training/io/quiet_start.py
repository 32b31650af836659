"""Starting TensorFlow and Keras quickly, and without their start-up chatter."""

import contextlib
import gc
import importlib.util
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

from ..errors import UsageError

_BACKENDS = {"tensorflow": "tensorflow", "jax": "'keras-vit-16x16[jax]'"}

# TensorFlow's libraries print these before any setting of theirs can silence them.
CHATTER = re.compile(
    rb"^(WARNING: All log messages before absl::InitializeLog|[IW]0000 |"
    rb"To enable the following instructions|E0000 .*(cuda_|cudart_)|"
    rb"INFO: Created TensorFlow Lite|.*pkg_resources)"
)
# For Keras's pictures, wrappers and Orbax checkpoints, and TFLite files of JAX's functions.
_NEEDED_BY_NO_COMMAND = ("jax", "matplotlib", "sklearn")
# Keras imports its backend first, which needs JAX if it is JAX.
_BACKEND_OF_JAX = "keras.src.backend.jax"


def import_tensorflow() -> types.ModuleType:
    """Returns the `tensorflow` module, imported and with its devices found, quietly.

    Afterwards absl, by which TensorFlow's packages log, prints errors only. Raises `UsageError` if
    it is not installed.
    """
    from absl import logging

    _require("tensorflow", "reads the images, with every KERAS_BACKEND")
    with quiet_start(), quick_imports():
        import tensorflow as tf

        tf.config.list_physical_devices()
    logging.set_verbosity(logging.ERROR)
    return tf


def check_backend() -> None:
    """Checks `KERAS_BACKEND` before Keras is imported, which fails with a long traceback.

    Raises `UsageError` if it names neither tensorflow nor jax, or one that is not installed.
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


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Holds back what the process prints to standard error, and drops the known chatter.

    Other lines are printed at the end, also after an error. For imports and the start of an
    interpreter alone: the file descriptor of the whole process is redirected.
    """
    # TensorFlow logs harmless facts as errors, such as a processor without AVX-512.
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


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Imports TensorFlow and Keras in two thirds of the time or less.

    Hides packages that they import for functions that no command calls, and exempts the imported
    modules from garbage collection. For commands alone: those functions are missing afterwards.
    Does nothing where Keras is imported already.
    """
    if "keras" in sys.modules:
        yield
        return
    finder, collects = _NotFound(), gc.isenabled()
    gc.disable()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        gc.freeze()
        if collects:
            gc.enable()


class _NotFound:
    """An importer that says of packages that they are not installed."""

    def find_spec(self, name, path=None, target=None):
        if name in _NEEDED_BY_NO_COMMAND and _BACKEND_OF_JAX not in sys.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
