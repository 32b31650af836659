"""The base class of the layers."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras


class Layer(keras.layers.Layer):
    """A layer whose configuration is the arguments of its constructor, kept as attributes.

    Its output has the shape of its first input, unless `compute_output_shape` says otherwise.
    """

    def keep(self, arguments: Mapping[str, Any]) -> None:
        """Keeps the arguments of a constructor, its `locals()`, as attributes of their names."""
        for name in arguments.keys() - {"self", "kwargs", "__class__"}:
            setattr(self, name, arguments[name])

    def inner(
        self, make: Callable, name: str, *args: Any, shape: tuple | None = None, **kwargs: Any
    ) -> keras.layers.Layer:
        """Returns a layer for use inside this one, of the same dtype policy, frozen if this one is.

        `make` makes it of the other arguments. It is built if the `shape` of its input is given.
        """
        common = {"dtype": self.dtype_policy, "trainable": self.trainable}
        layer = make(*args, name=name, **common, **kwargs)
        if shape is not None:
            layer.build(shape)
        return layer

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        own = {
            name: getattr(self, name)
            for kind in type(self).__mro__
            if issubclass(kind, Layer) and "__init__" in vars(kind)
            for name, parameter in inspect.signature(kind.__init__).parameters.items()
            if parameter.kind not in several and hasattr(self, name)
        }
        return {**own, **super().get_config()}
