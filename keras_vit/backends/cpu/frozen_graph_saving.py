"""A frozen graph as a file: a ZIP archive of the operations, and of every weight as NumPy's."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_vit.backends.cpu.frozen_graph import FrozenGraph
from keras_vit.checkpoints.npz_and_safetensors import DAMAGE
from keras_vit.hidden_folder import hidden_folder

_DESCRIPTION = "inference_function.json"
_OPERATIONS = "graph.pb"
_VERSION = 1

Made = TypeVar("Made")


def write_frozen_graph(path: str | os.PathLike, graph: FrozenGraph, settings: dict) -> None:
    """Writes a graph, every weight once and as it is, and settings of JSON's types.

    The file has exactly the name `path`, and appears whole or not at all.

    Raises:
        OSError: if the file cannot be written.
    """
    path = Path(path)
    description = {
        "version": _VERSION,
        "tensorflow": tf.__version__,
        "images": graph.images,
        "shape": graph.shape,
        "output": graph.output,
        "weights": {name: value.dtype.name for name, value in graph.weights.items()},
        "settings": settings,
    }
    with hidden_folder(path) as folder:
        temporary = folder / path.name
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_DESCRIPTION, json.dumps(description))
            archive.writestr(_OPERATIONS, graph.definition.SerializeToString(deterministic=True))
            for index, value in enumerate(graph.weights.values()):
                with archive.open(_member(index), "w", force_zip64=True) as file:
                    # NumPy's format has no name for bfloat16.
                    array = value.numpy()
                    array = array.view("uint16") if value.dtype == tf.bfloat16 else array
                    np.lib.format.write_array(file, array, allow_pickle=False)
        os.replace(temporary, path)


def read_frozen_graph(path: str | os.PathLike, make: Callable[..., Made]) -> Made:
    """Returns `make(graph, **settings)` of the file that `write_frozen_graph` wrote.

    Raises:
        ValueError: if the file is damaged or another one, or `make` fails of it.
        OSError: if it cannot be read.
    """
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                graph, settings = _read(archive)
            return make(graph, **settings)
        except (*DAMAGE, DecodeError, tf.errors.OpError) as error:
            raise ValueError(
                f"Expected a file that InferenceFunction.save wrote. Received: {path} "
                f"({error or type(error).__name__}). Save it again."
            ) from error


def _read(archive):
    description = json.loads(archive.read(_DESCRIPTION))
    if description["version"] != _VERSION:
        raise ValueError(
            f"it is of version {description['version']}, written with TensorFlow "
            f"{description['tensorflow']}; version {_VERSION} is known here"
        )
    weights = {}
    for index, (name, dtype) in enumerate(description["weights"].items()):
        with archive.open(_member(index)) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
        # An operation on each, as TensorFlow keeps NumPy's arrays until it runs the next one.
        weights[name] = tf.bitcast(tf.constant(array), tf.as_dtype(dtype))
    definition = tf.compat.v1.GraphDef.FromString(archive.read(_OPERATIONS))
    taken = {f"{node.name}:0" for node in definition.node if node.op == "Placeholder"}
    if unlike := taken ^ {description["images"], *weights}:
        raise ValueError(f"its operations take other tensors than it holds: {sorted(unlike)}")
    graph = FrozenGraph(
        definition,
        description["images"],
        tuple(description["shape"]),
        description["output"],
        weights,
    )
    return graph, description["settings"]


def _member(index):
    return f"weights/{index}.npy"
