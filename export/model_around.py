"""A user's model around one of ours, as a model that can be exported.

`keras.Sequential([Rescaling(1 / 127.5, offset=-1), keras_vit…, Dense(5)])` and its like: layers of
Keras that prepare images, a model of `keras_vit`, and a new head.
"""

from collections.abc import Callable

import keras
import numpy as np

from export.errors import ExportError
from keras_vit.models.base import ImageModel
from keras_vit.models.precision import policy_of

RANGES = {"[0, 1]": (0.0, 1.0), "[0, 255]": (0.0, 255.0), "[-1, 1]": (-1.0, 1.0)}
_TOLERANCE = 1e-2


def model_around(
    model: keras.Model, portable: Callable[[keras.Model], keras.Model]
) -> ImageModel | None:
    """Returns a model of images in [-1, 1] on the layers of `model`, or None if ours is not inside.

    Which range its images have is found by what reaches our model, which takes [-1, 1]: that of
    [0, 1], [0, 255] and [-1, 1] which arrives as it.

    Args:
        model: `keras.Sequential`, of layers that are on (batch, height, width, 3), one of our
            models, and a head that ends with a `Dense` layer.
        portable: makes the model inside the one that is handed over.

    Raises:
        ExportError: if no range arrives as [-1, 1], if the images have no size, or the last
            layer is not `Dense`.
    """
    layers = list(getattr(model, "layers", ()))
    ours = [index for index, layer in enumerate(layers) if isinstance(layer, ImageModel)]
    if not isinstance(model, keras.Sequential) or len(ours) != 1:
        return None
    before, (core, *head) = layers[: ours[0]], layers[ours[0] :]
    size = tuple(model.input_shape[1:])
    if len(size) != 3 or None in size:
        raise ExportError(
            "Expected images of one size: begin with keras.Input((height, width, 3)). Received: "
            f"{model.name}, for {size}."
        )
    if head and not isinstance(head[-1], keras.layers.Dense):
        raise ExportError(
            "Expected a model that ends with a Dense layer, its head. Received: "
            f"{model.name}, which ends with {head[-1].name}."
        )
    low, high = _image_range(model, before, size)
    images = keras.Input(size, dtype="float32", name="images")
    scale = keras.layers.Rescaling((high - low) / 2, (high + low) / 2, dtype="float32")
    x = images if (low, high) == (-1.0, 1.0) else scale(images)
    core = portable(core)
    for layer in (*before, core, *head[:-1]):
        x = layer(x)
    endpoints = {"representation": x}
    if head:
        endpoints["logits"] = _without_activation(head[-1])(x)
    elif core.arguments.get("num_classes") is not None:
        endpoints = {"logits": x}
    units = next(iter(reversed(endpoints.values()))).shape[-1] if "logits" in endpoints else None
    around = ImageModel(images, endpoints, {"num_classes": units}, policy_of("float32"), model.name)
    if not head:
        around.class_names = core.class_names
    return around


def _image_range(model, before, size):
    """Returns the (low, high) of the model's images."""
    if not before:
        return RANGES["[-1, 1]"]
    for low, high in RANGES.values():
        ends = np.stack([np.full(size, value, "float32") for value in (low, high)])
        for layer in before:
            ends = layer(ends, training=False)
        found = keras.ops.convert_to_numpy(ends)
        if np.abs(found - np.array([-1, 1]).reshape(2, 1, 1, 1)).max() < _TOLERANCE:
            return low, high
    raise ExportError(
        f"Expected layers of {model.name} that bring images of {', '.join(RANGES)} to [-1, 1], "
        "which keras_vit's models take, such as keras.layers.Rescaling(1 / 127.5, offset=-1)."
    )


def _without_activation(head):
    """Returns a Dense layer that gives logits, with the weights of `head`."""
    if head.activation is keras.activations.linear:
        return head
    if head.activation not in (keras.activations.softmax, keras.activations.sigmoid):
        raise ExportError(
            "Expected a head without activation, with softmax or with sigmoid. Received: "
            f"{head.name} with {head.activation.__name__}."
        )
    config = {**head.get_config(), "activation": "linear"}
    logits = type(head).from_config(config)
    logits.build((None, head.kernel.shape[0]))
    logits.set_weights(head.get_weights())
    return logits
