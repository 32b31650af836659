"""Engines run the updates of a model: one for each backend of Keras."""

from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from ..errors import UsageError

if TYPE_CHECKING:
    from .engine_interface import Engine


def create_engine(config: ConfigDict) -> "Engine":
    """Returns the engine of Keras's backend (`KERAS_BACKEND`), `tensorflow` or `jax`.

    Raises `UsageError` for another backend, or a config that it cannot run.
    """
    import keras

    backend = keras.backend.backend()
    if backend == "tensorflow":
        from .tensorflow import TensorFlowEngine

        return TensorFlowEngine(config)
    if backend == "jax":
        from .jax import JaxEngine

        return JaxEngine(config)
    raise UsageError(f"KERAS_BACKEND: expected tensorflow or jax. Received: {backend!r}.")
