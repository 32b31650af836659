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

from keras_vit.photo_predictions import ACTIVATIONS
from keras_vit.training.evaluators.model_from_source import damage_named
from keras_vit.training.io.paths import read_text
from keras_vit.training.io.quiet_start import quiet_start

# Names of the texts inside of exported files, which `export` writes.
LABELS_FILE = "labels.txt"
INTERFACE_FILE = "interface.json"
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
    return _inside(pathlib.Path(path), LABELS_FILE, str.splitlines)


def interface_of(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the `interface.json` inside of a module or TFLite file, or {}.

    Raises:
        ValueError: if it is damaged.
    """
    return _inside(pathlib.Path(path), INTERFACE_FILE, _interface) or {}


def _inside(path, name, parse):
    """Returns the text of that name inside of an exported file, parsed, or None without one."""
    with damage_named(f"The texts inside of {path} are damaged", "Export the model again."):
        if path.is_dir():
            file = path / "assets" / name
            return parse(read_text(file)) if file.is_file() else None
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                found = name in archive.namelist()
                return parse(archive.read(name).decode("utf-8")) if found else None
        # The texts are an archive behind the model, and their names outlive its end.
        if any(each.encode() in path.read_bytes() for each in (LABELS_FILE, INTERFACE_FILE)):
            raise ValueError("the end of the file is missing")


def _interface(text):
    interface = json.loads(text)
    if not isinstance(interface, dict):
        raise ValueError("its interface.json is no object")
    if not isinstance(interface.get("preprocessing", ""), str):
        raise ValueError(f"its preprocessing is {interface['preprocessing']!r}")
    if interface.get("activation") not in (None, *ACTIVATIONS):
        raise ValueError(f"its activation is {interface['activation']!r}")
    return interface


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
