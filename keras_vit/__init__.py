"""The Vision Transformer for Keras 3."""

import importlib.util
from typing import TYPE_CHECKING

from keras_vit.lazy_imports import runs_command
from keras_vit.version import warn_of_namesake

warn_of_namesake()

if TYPE_CHECKING:
    from keras_vit.export.tflite.cpu_inference_function import (  # noqa: F401
        InferenceFunction,
        inference_function,
        load_inference_function,
    )

# Names of the exporters, which most programs do not import.
_EXPORTED = ("InferenceFunction", "inference_function", "load_inference_function")

if TYPE_CHECKING or not runs_command():
    from keras_vit import public_names
    from keras_vit.public_names import *  # noqa: F403
    from keras_vit.public_names import __version__ as __version__

    __all__: list[str] = [*public_names.__all__, *_EXPORTED]


def __getattr__(name):
    if name in _EXPORTED:
        return getattr(
            importlib.import_module("keras_vit.export.tflite.cpu_inference_function"), name
        )
    if name == "__all__":  # of a command, which imports what it uses
        return [*importlib.import_module("keras_vit.public_names").__all__, *_EXPORTED]
    if not runs_command() or (name.startswith("__") and name != "__version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec(f"keras_vit.{name}"):
        return importlib.import_module(f"keras_vit.{name}")
    return getattr(importlib.import_module("keras_vit.public_names"), name)
