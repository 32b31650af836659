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
        _, *names = inspect.signature(type(self).__init__).parameters
        own = {name: getattr(self, name) for name in names if name != "kwargs"}
        return {**super().get_config(), **own}
