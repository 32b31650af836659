"""Which layers of a model are frozen, as a part of its configuration."""

import keras

from keras_vit.models.nested_layers import nested_layers


def trainability(model: keras.Model) -> dict[str, bool]:
    """Returns `trainable` of every layer that differs from the layer around it, by path."""
    return {
        path: layer.trainable
        for path, layer, outer in nested_layers(model)
        if layer.trainable != outer.trainable
    }


def apply_trainability(model: keras.Model, changes: dict[str, bool]) -> None:
    """Sets what `trainability` returned.

    Raises:
        ValueError: if a path names no layer of the model.
    """
    layers = {path: layer for path, layer, _ in nested_layers(model)}
    unknown = sorted(set(changes) - set(layers))
    if unknown:
        raise ValueError(
            f"`trainable_layers` must name layers of the model, {', '.join(layers)}. "
            f"Received: {', '.join(unknown)}"
        )
    # A layer's setting reaches all layers inside of it, so inner ones come later.
    for path, layer in layers.items():
        if path in changes:
            layer.trainable = changes[path]
