"""Exported files: the texts inside of modules and TFLite files, and running TFLite files."""

import json
import math
import os
import pathlib
import threading
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_vit.predict import ACTIVATIONS
from training.io.paths import read_text
from training.io.quiet_start import quiet_start

_STARTING = threading.Lock()
# Upper limits for a tensor's size, against damaged shapes: a multiple of the next largest tensor
# and the file, and bytes that are allowed in any case.
_LARGEST_RATIO = 64
_HARMLESS = 2**24


def labels_of(path: str | os.PathLike) -> list[str] | None:
    """Returns the class names inside of a TF-Hub module or TFLite file, or None without any.

    Raises:
        ValueError: if they are damaged.
    """
    text = _text(pathlib.Path(path), "labels.txt")
    return None if text is None else text.splitlines()


def interface_of(path: str | os.PathLike) -> dict[str, Any]:
    """Returns what `export.interface` wrote into a module or TFLite file, or {}.

    Raises:
        ValueError: if it is damaged.
    """
    text = _text(pathlib.Path(path), "interface.json") or "{}"
    try:
        interface = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(interface, dict):
        raise _damaged(path, "its interface.json is no object")
    if not isinstance(interface.get("preprocessing", ""), str):
        raise _damaged(path, f"its preprocessing is {interface['preprocessing']!r}")
    if interface.get("activation") not in (None, *ACTIVATIONS):
        raise _damaged(path, f"its activation is {interface['activation']!r}")
    return interface


def _text(path, name):
    try:
        if path.is_dir():
            file = path / "assets" / name
            return read_text(file) if file.is_file() else None
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return archive.read(name).decode("utf-8") if name in archive.namelist() else None
    except Exception as error:
        # A damaged archive fails in many ways, depending on which byte it is.
        reason = error if path.is_dir() else f"{type(error).__name__}: {error}"
        raise _damaged(path, reason) from error
    # The texts are an archive behind the model, and their names outlive its end.
    if any(each in path.read_bytes() for each in (b"labels.txt", b"interface.json")):
        raise _damaged(path, "the end of the file is missing")
    return None


def _damaged(path, reason):
    return ValueError(f"The texts inside of {path} are damaged: {reason}. Export the model again.")


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
        sizes = [(0, ""), (0, "")]
        for each in interpreter.get_tensor_details(graph):
            count = math.prod(map(int, each["shape"]))
            sizes.append((count * np.dtype(each["dtype"]).itemsize, each["name"]))
        (second, _), (largest, name) = sorted(sizes)[-2:]
        if largest > max(_HARMLESS, _LARGEST_RATIO * (second + file_size)):
            raise ValueError(
                f"The tensor {name} claims {largest} bytes, the next largest {second}, and the "
                f"file has {file_size}: its shape is damaged."
            )
