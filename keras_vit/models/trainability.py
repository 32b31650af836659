"""Which layers of a model are frozen, as a part of its configuration."""

from collections.abc import Iterator

import keras


def trainability(model: keras.Model) -> dict[str, bool]:
    """Returns `trainable` of every layer that differs from the layer around it, by path."""
    return {
        path: layer.trainable
        for path, layer, outer in _layers(model)
        if layer.trainable != outer.trainable
    }


def apply_trainability(model: keras.Model, changes: dict[str, bool]) -> None:
    """Sets what `trainability` returned.

    Raises:
        ValueError: if a path names no layer of the model.
    """
    layers = {path: layer for path, layer, _ in _layers(model)}
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


def _layers(
    layer: keras.layers.Layer, prefix: str = ""
) -> Iterator[tuple[str, keras.layers.Layer, keras.layers.Layer]]:
    """Yields (path, layer, the layer around it), outer layers before inner ones."""
    for inner in layer._flatten_layers(include_self=False, recursive=False):
        path = f"{prefix}{inner.name}"
        yield path, inner, layer
        yield from _layers(inner, f"{path}/")
