"""Starting TensorFlow and Keras quickly, and running them without their libraries' chatter."""

import contextlib
import gc
import importlib.util
import io
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import types
import warnings
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
# libjpeg's, of a damaged file that it decodes all the same.
DAMAGED_JPEG = re.compile(
    rb"^(Corrupt JPEG data|Premature end of JPEG file|Invalid SOS parameters|Inconsistent progress|"
    rb"Warning: unknown JFIF|Unknown Adobe color transform|Application transferred too many)"
)
_FILTER = f"""
import re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
is_damage, damaged = re.compile({DAMAGED_JPEG.pattern!r}).match, False
for line in sys.stdin.buffer:
    if is_damage(line):
        damaged = True
    else:
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
if damaged:
    print("Some photos hold damaged JPEG data, and were read as far as they are whole: "
          "keras-vit data check folder:FOLDER --all names them.", file=sys.stderr)
"""
# For Keras's pictures, wrappers and Orbax checkpoints, and TFLite files of JAX's functions.
_NEEDED_BY_NO_COMMAND = ("jax", "matplotlib", "sklearn")
# Keras imports its backend first, which needs JAX if it is JAX.
_BACKEND_OF_JAX = "keras.src.backend.jax"
# The log and standard output are of the whole process.
_CONVERTING = threading.Lock()


def import_tensorflow() -> types.ModuleType:
    """Returns the `tensorflow` module, imported and with its devices found, quietly.

    Afterwards absl, by which TensorFlow's packages log, prints errors only. Raises `UsageError` if
    it is not installed.
    """
    from absl import logging as absl_logging

    _require("tensorflow", "reads the images, with every KERAS_BACKEND")
    with quiet_start(), quick_imports():
        import tensorflow as tf

        tf.config.list_physical_devices()
    absl_logging.set_verbosity(absl_logging.ERROR)
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
    lines: list[bytes] = []
    try:
        with held_stderr(lines):
            yield
    finally:
        for line in lines:
            if not CHATTER.match(line):
                os.write(sys.__stderr__.fileno(), line)  # type: ignore[union-attr]


@contextlib.contextmanager
def held_stderr(lines: list[bytes]) -> Iterator[None]:
    """Adds to `lines`, at its end, what the process prints to standard error, if that is a file."""
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
            lines.extend(held)


@contextlib.contextmanager
def without_libjpeg() -> Iterator[None]:
    """Leaves out what libjpeg prints, on its own, of each damaged photo that it decodes.

    Another process reads standard error meanwhile, so that the last words of a process that aborts
    are printed. What Python prints does not go that way, and sees the terminal.
    """
    stderr: Any = sys.stderr
    try:
        saved, is_own = os.dup(2), stderr.fileno() == 2
        command = [sys.executable, "-I", "-S", "-c", _FILTER]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        reader = subprocess.Popen(command, **streams, start_new_session=True)
    except (AttributeError, OSError, ValueError):
        yield
        return
    pipe: Any = reader.stdin
    os.dup2(pipe.fileno(), 2)
    pipe.close()
    if is_own:
        # Left open, as libraries may keep it.
        sys.stderr = os.fdopen(saved, "w", 1, stderr.encoding, stderr.errors, closefd=False)
    try:
        yield
    finally:
        sys.stderr = stderr
        stderr.flush()
        os.dup2(saved, 2)
        if not is_own:
            os.close(saved)
        # A process that was left running may hold the pipe open.
        with contextlib.suppress(subprocess.TimeoutExpired):
            reader.wait(5)


@contextlib.contextmanager
def without_warnings(name: str = "keras_vit") -> Iterator[None]:
    """Holds back the warnings of the logger of that name."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def quiet_conversion(ignored: type[Warning]) -> Iterator[None]:
    """Keeps converters and quantizers of models off the terminal.

    Drops progress bars, reports, the log up to warnings, and warnings of the kind `ignored`.
    """
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
