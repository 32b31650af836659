"""Which layers of a model are frozen, as a part of its configuration."""

import keras

KEY = "trainable_layers"


class SavedTrainability(keras.Model):
    """A model whose configuration keeps the trainability of every layer inside.

    Subclasses return the arguments of their constructor from `get_arguments`.
    """

    def _follow(self, policy):
        # Set on a model, a policy that quantizes would quantize its layers again.
        if policy.quantization_mode is None:
            self.dtype_policy = policy

    def get_arguments(self):
        raise NotImplementedError

    def get_config(self):
        changes = dict(_changes(self))
        return {**self.get_arguments(), **({KEY: changes} if changes else {})}

    @classmethod
    def from_arguments(cls, arguments, custom_objects=None):
        return cls(**arguments)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        arguments = dict(config)
        changes = arguments.pop(KEY, {})
        model = cls.from_arguments(arguments, custom_objects)
        _apply(model, changes)
        return model


def _layers(layer, prefix=""):
    """Yields (path, layer, the layer around it), outer layers before inner ones."""
    for inner in layer._flatten_layers(include_self=False, recursive=False):
        path = f"{prefix}{inner.name}"
        yield path, inner, layer
        yield from _layers(inner, f"{path}/")


def _changes(model):
    """Yields (path, trainable) of the layers that differ from the layer around them."""
    for path, layer, outer in _layers(model):
        if layer.trainable != outer.trainable:
            yield path, layer.trainable


def _apply(model, changes):
    layers = {path: layer for path, layer, _ in _layers(model)}
    unknown = sorted(set(changes) - set(layers))
    if unknown:
        raise ValueError(
            f"`{KEY}` must name layers of the model, {', '.join(layers)}. "
            f"Received: {', '.join(unknown)}"
        )
    # A layer's setting reaches all layers inside of it, so inner ones come later.
    for path, layer in layers.items():
        if path in changes:
            layer.trainable = changes[path]
