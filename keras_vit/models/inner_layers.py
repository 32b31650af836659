"""The layers inside of a model: their paths, what is frozen or quantized, and replacing them."""

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from keras_vit.type_hints import Tensor


def inner_layers(
    layer: keras.layers.Layer, prefix: str = ""
) -> Iterator[tuple[str, keras.layers.Layer, keras.layers.Layer]]:
    """Yields (path, layer, the layer around it), outer layers before inner ones."""
    for inner in layer._flatten_layers(include_self=False, recursive=False):
        path = f"{prefix}{inner.name}"
        yield path, inner, layer
        yield from inner_layers(inner, f"{path}/")


def trainability(model: keras.Model) -> dict[str, bool]:
    """Returns `trainable` of every layer that differs from the layer around it, by path."""
    return {
        path: layer.trainable
        for path, layer, outer in inner_layers(model)
        if layer.trainable != outer.trainable
        # An input's name may be one that Keras makes up.
        and not isinstance(layer, keras.layers.InputLayer)
    }


def apply_trainability(model: keras.Model, changes: dict[str, bool]) -> None:
    """Sets what `trainability` returned. Raises ValueError if a path names no layer."""
    layers = {path: layer for path, layer, _ in inner_layers(model)}
    if unknown := sorted(changes.keys() - layers.keys()):
        raise ValueError(
            f"`trainable_layers` must name layers of the model, {', '.join(layers)}. "
            f"Received: {', '.join(unknown)}"
        )
    # Setting a layer sets the layers inside of it, so inner ones come later.
    for path, layer in layers.items():
        if path in changes:
            layer.trainable = changes[path]


def quantized_layers(model: keras.Model) -> dict[str, str]:
    """Returns the mode of every layer that `model.quantize` changed, such as "int8", by path."""
    modes = {path: _mode(layer) for path, layer, _ in inner_layers(model)}
    return {path: mode for path, mode in modes.items() if mode}


def quantize_layers(model: keras.Model, modes: dict[str, str]) -> None:
    """Quantizes the layers that `quantized_layers` returned. Their weights can then be loaded."""
    for path, layer, _ in inner_layers(model):
        if path in modes and not _mode(layer):
            layer.quantize(modes[path])


def require_unquantized(model: keras.Model) -> None:
    """Raises ValueError if a layer is quantized: its kernel has no meaning without its scales."""
    if modes := {*quantized_layers(model).values()}:
        raise ValueError(
            f"Expected a model as it was trained. Received: {model.name}, which model.quantize("
            f"{min(modes)!r}) changed. Take it from before that; its .keras file holds it whole, "
            "and TFLite files are quantized when they are written."
        )


def _mode(layer):
    # Layers around quantized ones have a map of policies, which has no mode.
    return getattr(layer.dtype_policy, "quantization_mode", None)


def with_replaced_layers(
    model: keras.Model,
    replacements: Mapping[type[keras.layers.Layer], Callable],
    batch_shape: tuple[int | None, ...] | None = None,
) -> keras.Model:
    """Returns a functional model that computes layers of the given types by other functions.

    `model`, and models inside it, have one input and one output. A function takes the layer and
    the layer's arguments, and returns its output up to rounding. `batch_shape` is the input's;
    None leaves it as it is.
    """
    # Without the optimizer, and by the shortcut if the model has one.
    if hasattr(model, "up_to"):
        graph = model.up_to()
    else:
        outputs = model.output if len(model.outputs) > 1 else model.outputs[0]
        graph = keras.Model(model.inputs[0], outputs, name=model.name)
    (images,), calls = graph.inputs, collections.Counter[str]()

    def call(layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Tensor:
        if isinstance(layer, keras.Model):
            return with_replaced_layers(layer, replacements)(*args, **kwargs)
        function = replacements.get(type(layer))
        if function is None:
            return layer(*args, **kwargs)
        calls[layer.name] += 1
        # Named after its layer, so that equal models have equal graphs. A name is used once.
        name = layer.name if calls[layer.name] == 1 else f"{layer.name}_call_{calls[layer.name]}"
        return _ReplacedLayer(layer, function, name)(*args, **kwargs)

    return keras.models.clone_model(
        graph,
        input_tensors=keras.Input(batch_shape=batch_shape or images.shape, dtype=images.dtype),
        clone_function=lambda layer: layer,
        call_function=call,
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
