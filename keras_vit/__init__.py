"""The Vision Transformer for Keras 3."""

import importlib.util
from typing import TYPE_CHECKING

from keras_vit.installation import runs_command, warn_of_namesake

warn_of_namesake()

if TYPE_CHECKING or not runs_command():
    from keras_vit.public_names import *  # noqa: F403
    from keras_vit.public_names import __all__ as __all__
    from keras_vit.public_names import __version__ as __version__
else:

    def __getattr__(name):
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if importlib.util.find_spec(f"keras_vit.{name}"):
            return importlib.import_module(f"keras_vit.{name}")
        return getattr(importlib.import_module("keras_vit.public_names"), name)
