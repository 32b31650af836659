"""A model with some of its layers computed by other functions, on the same weights."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_vit.typing import Tensor


def with_replaced_layers(
    model: keras.Model,
    replacements: Mapping[type[keras.layers.Layer], Callable],
    batch_shape: tuple[int | None, ...] | None = None,
) -> keras.Model:
    """Returns a functional model in which layers of the given types are computed otherwise.

    Args:
        model: a functional model of one input and one output, models inside it likewise.
        replacements: from a type of layers to a function that is called with the layer and with
            what the layer would be called with, and returns the same up to rounding.
        batch_shape: of the input; None leaves it as it is.
    """
    images = model.inputs[0]
    calls: collections.Counter[str] = collections.Counter()

    def call(layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Tensor:
        function = replacements.get(type(layer))
        if function is None:
            return layer(*args, **kwargs)
        calls[layer.name] += 1
        # Of its layer's name, so that equal models have equal graphs; names are for one call.
        name = layer.name if calls[layer.name] == 1 else f"{layer.name}_call_{calls[layer.name]}"
        return _ReplacedLayer(layer, function, name)(*args, **kwargs)

    return keras.models.clone_model(
        keras.Model(images, model.outputs[0], name=model.name),  # without the optimizer
        input_tensors=keras.Input(batch_shape=batch_shape or images.shape, dtype="float32"),
        clone_function=lambda layer: layer,
        call_function=call,
        recursive=True,
    )


class _ReplacedLayer(keras.layers.Layer):
    """A layer of a model, computed by another function."""

    def __init__(self, layer, function, name):
        super().__init__(name=name, dtype=layer.dtype_policy, autocast=layer.autocast)
        self.layer = layer
        self.function = function
        self.built = True

    def call(self, inputs, **kwargs):
        return self.function(self.layer, inputs, **kwargs)

    def compute_output_spec(self, inputs, **kwargs):
        return self.layer.compute_output_spec(inputs, **kwargs)
