"""The layers of a model, each made once."""

from collections.abc import Callable
from typing import Any

import keras

from keras_vit.models.precision import policy_of


class LayersByName:
    """Makes layers at their first mention and returns the same ones ever after.

    So one forward function builds a model and, called again on other images, a second
    graph on the same weights.

    Args:
        dtype: of the model: a dtype policy, its name, or None for Keras's global one.
    """

    def __init__(self, dtype: str | keras.DTypePolicy | None):
        self.policy = policy_of(dtype)
        self.made: dict[str, keras.layers.Layer] = {}

    def __call__(
        self, name: str, make: Callable, dtype: str | None = None, **arguments: Any
    ) -> keras.layers.Layer:
        """Returns the layer of a name.

        Args:
            name: str.
            make: class or function that makes the layer the first time.
            dtype: its precision, if that is not the model's.
            **arguments: of `make`.
        """
        if name not in self.made:
            self.made[name] = make(**arguments, dtype=dtype or self.policy, name=name)
        return self.made[name]
