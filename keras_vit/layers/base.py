"""The base class of the layers."""

import inspect
from collections.abc import Callable
from typing import Any

import keras


class Layer(keras.layers.Layer):
    """A layer that keeps each argument of its constructor as an attribute of the same name.

    Its configuration is those arguments. Its output has the shape of its first input, unless
    `compute_output_shape` says otherwise.
    """

    def inner(
        self, make: Callable, name: str, *args: Any, shape: tuple | None = None, **kwargs: Any
    ) -> keras.layers.Layer:
        """Returns a layer for use inside this one, with the same dtype policy.

        Args:
            make: class or function that makes the layer.
            name: str.
            *args: of `make`.
            shape: of the input if the layer is to be built, or None.
            **kwargs: of `make`.
        """
        layer = make(*args, name=name, dtype=self.dtype_policy, **kwargs)
        if shape is not None:
            layer.build(shape)
        return layer

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        names = [name for name in _arguments(type(self)) if hasattr(self, name)]
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _arguments(layer: type[Layer]) -> list[str]:
    """Names the arguments that the constructors of a layer's classes add to Keras's."""
    parameters = {
        name: parameter
        for constructor in (vars(kind).get("__init__") for kind in layer.__mro__[::-1])
        if constructor
        for name, parameter in inspect.signature(constructor).parameters.items()
    }
    kept = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    of_keras = inspect.signature(keras.layers.Layer.__init__).parameters
    return [name for name, of in parameters.items() if of.kind in kept and name not in of_keras]
