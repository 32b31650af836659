"""Which layers `model.quantize(mode)` has quantized, as a part of a model's configuration."""

import keras

from keras_vit.models.nested_layers import nested_layers


def quantized_layers(model: keras.Model) -> dict[str, str]:
    """Returns the mode of every quantized layer, such as "int8", by path."""
    modes = {path: _mode(layer) for path, layer, _ in nested_layers(model)}
    return {path: mode for path, mode in modes.items() if mode}


def quantize_layers(model: keras.Model, modes: dict[str, str]) -> None:
    """Gives layers the variables of what `quantized_layers` returned, for weights to be loaded."""
    for path, layer, _ in nested_layers(model):
        if path in modes and not _mode(layer):
            layer.quantize(modes[path])


def require_unquantized(model: keras.Model) -> None:
    """Raises ValueError if a layer is quantized: its kernel alone, without scales, says nothing."""
    modes = set(quantized_layers(model).values())
    if modes:
        raise ValueError(
            f"Expected a model as it was trained. Received: {model.name}, which model.quantize("
            f"{min(modes)!r}) changed. Take it from before that; its .keras file holds it whole, "
            "and TFLite files are quantized when they are written."
        )


def _mode(layer):
    # Layers around quantized ones have a map of policies, which has no mode.
    return getattr(layer.dtype_policy, "quantization_mode", None)
