"""A user's model around one of ours, as a model that can be exported.

`keras.Sequential([Rescaling(1 / 127.5, offset=-1), keras_vit…, Dense(5)])`, the same as a
functional model, and their like: operations of Keras that prepare images, a model of `keras_vit`,
and a new head.
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
        model: `keras.Sequential` or a functional model, from (batch, height, width, 3) through one
            of our models to a head that ends with a `Dense` layer.
        portable: makes the model inside the one that is handed over.

    Raises:
        ExportError: if no range arrives as [-1, 1], if the images have no size, or the last
            layer is not `Dense`.
    """
    ours = [each for each in getattr(model, "layers", ()) if isinstance(each, ImageModel)]
    if len(ours) != 1 or len(getattr(model, "inputs", ())) != 1 or len(model.outputs) != 1:
        return None
    (core,) = ours
    size = tuple(model.input_shape[1:])
    if len(size) != 3 or None in size:
        raise ExportError(
            "Expected images of one size: begin with keras.Input((height, width, 3)). Received: "
            f"{model.name}, for {size}."
        )
    graph = keras.Model(model.inputs, model.outputs)
    last = graph.operations[-1]
    if last is not core and not isinstance(last, keras.layers.Dense):
        raise ExportError(
            "Expected a model that ends with a Dense layer, its head. Received: "
            f"{model.name}, which ends with {last.name}."
        )
    images = keras.Input(size, dtype="float32", name="images")
    prepared, endpoints = _handed_over(graph, core, portable(core), last, images)
    low, high = _image_range(model.name, images, prepared)
    if (low, high) != (-1.0, 1.0):
        scale = keras.layers.Rescaling((high - low) / 2, (high + low) / 2, dtype="float32")
        whole = keras.Model(images, endpoints)
        images = keras.Input(size, dtype="float32", name="images")
        endpoints = whole(scale(images))
    units = endpoints["logits"].shape[-1] if "logits" in endpoints else None
    around = ImageModel(images, endpoints, {"num_classes": units}, policy_of("float32"), model.name)
    if last is core:
        around.class_names = core.class_names
    return around


def _handed_over(graph, core, portable_core, last, images):
    """Returns what reaches our model, and {name: tensor} of the representation and the logits."""
    prepared, endpoints = [], {}
    names = [name for name in ("representation", "logits") if name in portable_core.endpoints]
    outputs_of_core = keras.Model(
        portable_core.input, {name: portable_core.endpoints[name] for name in names}
    )

    def call(operation, *args, **kwargs):
        if operation is core:
            prepared.append(args[0])
            if core is last:
                endpoints.update(outputs_of_core(*args, **kwargs))
                return endpoints[list(endpoints)[-1]]
            operation = portable_core
        elif operation is last:
            endpoints["representation"] = args[0]
            operation = _without_activation(last)
        return operation(*args, **kwargs)

    copy = keras.models.clone_model(
        graph, input_tensors=[images], clone_function=lambda layer: layer, call_function=call
    )
    if len(prepared) != 1:
        raise ExportError(
            f"Expected images to pass through {core.name} once. Received: {graph.name}, which "
            f"calls it {len(prepared)} times."
        )
    if core is not last:
        endpoints["logits"] = copy.outputs[0]
    return prepared[0], endpoints


def _image_range(name, images, prepared):
    """Returns the (low, high) of images that our model gets in [-1, 1]."""
    if prepared is images:
        return RANGES["[-1, 1]"]
    before = keras.Model(images, prepared)
    for low, high in RANGES.values():
        ends = np.stack([np.full(images.shape[1:], value, "float32") for value in (low, high)])
        found = keras.ops.convert_to_numpy(before(ends, training=False))
        if np.abs(found - np.array([-1, 1]).reshape(2, 1, 1, 1)).max() < _TOLERANCE:
            return low, high
    raise ExportError(
        f"Expected layers of {name} that bring images of {', '.join(RANGES)} to [-1, 1], "
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
