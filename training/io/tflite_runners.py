"""TFLite files, run from any thread."""

import os
import threading
from collections.abc import Callable
from typing import Any

from training.io.quiet_tensorflow import quiet_start

_STARTING = threading.Lock()


def runner_of_thread(
    path: str | os.PathLike, signature: str | None = None, num_threads: int | None = None
) -> Callable[[], Any]:
    """Returns a function that gives each thread a runner of its own for a signature of a file.

    The tensors of an interpreter lie in one place of memory, where a second call overwrites the
    inputs of the first without an error.

    Args:
        path: the .tflite file; it is mapped, not copied.
        signature: its name; None is the only one.
        num_threads: of one interpreter; None leaves it to LiteRT.

    Raises:
        ValueError: from the function, if the file is damaged or has no such signature.
    """
    from ai_edge_litert.interpreter import Interpreter

    own = threading.local()

    def runner():
        if not hasattr(own, "runner"):
            # One at a time, as LiteRT's greeting is held back for the whole process.
            with _STARTING, quiet_start():
                # Kept, as its runner does not keep it.
                own.interpreter = Interpreter(str(path), num_threads=num_threads)
                own.interpreter.allocate_tensors()
                own.runner = own.interpreter.get_signature_runner(signature)
        return own.runner

    return runner
