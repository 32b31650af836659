"""The layers inside of a model's layers, by their paths."""

from collections.abc import Iterator

import keras


def nested_layers(
    layer: keras.layers.Layer, prefix: str = ""
) -> Iterator[tuple[str, keras.layers.Layer, keras.layers.Layer]]:
    """Yields (path, layer, the layer around it), outer layers before inner ones."""
    for inner in layer._flatten_layers(include_self=False, recursive=False):
        path = f"{prefix}{inner.name}"
        yield path, inner, layer
        yield from nested_layers(inner, f"{path}/")
