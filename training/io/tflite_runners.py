"""TFLite files, run from any thread."""

import math
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from training.io.quiet_tensorflow import quiet_start

_STARTING = threading.Lock()
# What no layer makes of the others' results: bytes of a tensor, as a multiple of the next one's and
# the file's, and how many are taken in any case.
_LARGEST_RATIO = 64
_HARMLESS = 2**24


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
        ValueError: from the function, if the file is damaged, has a tensor that claims far more
            memory than all others, or has no such signature.
    """
    from ai_edge_litert.interpreter import Interpreter

    own = threading.local()

    def runner():
        if not hasattr(own, "runner"):
            # One at a time, as LiteRT's greeting is held back for the whole process.
            with _STARTING, quiet_start():
                # Kept, as its runner does not keep it.
                own.interpreter = Interpreter(str(path), num_threads=num_threads)
                _check_claims(own.interpreter, os.path.getsize(path))
                own.interpreter.allocate_tensors()
                own.runner = own.interpreter.get_signature_runner(signature)
        return own.runner

    return runner


def _check_claims(interpreter, file_size):
    """Refuses a damaged shape before LiteRT takes the memory that it asks for."""
    for graph in range(interpreter.num_subgraphs()):
        tensors = interpreter.get_tensor_details(graph)
        sizes = {
            each["index"]: math.prod(map(int, each["shape"])) * np.dtype(each["dtype"]).itemsize
            for each in tensors
        }
        *_, second, largest = sorted((0, 0, *sizes.values()))
        if largest > max(_HARMLESS, _LARGEST_RATIO * (second + file_size)):
            (name,) = (each["name"] for each in tensors if sizes[each["index"]] == largest)
            raise ValueError(
                f"The tensor {name} claims {largest} bytes, the next largest {second}, and the "
                f"file has {file_size}: its shape is damaged."
            )
