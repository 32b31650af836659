"""Importing TensorFlow and Keras without what they import only because it is installed."""

import contextlib
import gc
import sys
from collections.abc import Iterator

# For Keras's pictures and wrappers and its Orbax checkpoints, and TFLite files of JAX's functions.
_NEEDED_BY_NO_COMMAND = ("jax", "matplotlib", "sklearn")
# Before all that, Keras imports its backend, which needs JAX if it is JAX.
_BACKEND_OF_JAX = "keras.src.backend.jax"


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Imports TensorFlow and Keras in two thirds of the time, and less.

    Packages that they take for functions of no command are not found meanwhile, and afterwards as
    ever. What was imported is no longer looked through for garbage: no module ends before its
    process.

    For commands alone: those functions are missing afterwards. Where Keras is imported already,
    this does nothing.
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
    """Says of packages that they are not installed."""

    def find_spec(self, name, path=None, target=None):
        if name in _NEEDED_BY_NO_COMMAND and _BACKEND_OF_JAX not in sys.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
