"""The model that an export describes: float32, no rematerialisation, TensorFlow variables."""

import keras

import keras_vit


def portable(model):
    """Returns `model`, or a copy of it in the form that is handed over.

    Whatever a model was trained in, its artefacts store and compute in float32:
    optimizers such as Adam do not move bfloat16 variables (1 - beta_2 rounds to
    zero), and phones and most CPUs have no bfloat16 arithmetic. Rematerialisation
    is dropped, as its gradient does not survive in a SavedModel, and frozen weights
    are trainable again: what to train is for the artefact's next user to say.

    Args:
        model: a `keras_vit.VisionTransformer` or `keras_vit.ResNetV2`.

    Raises:
        TypeError: if it is another kind of model.
        ValueError: if Keras runs on another backend than TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "Exporting needs Keras on TensorFlow. Received: backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow."
        )
    if not isinstance(model, (keras_vit.VisionTransformer, keras_vit.ResNetV2)):
        raise TypeError(
            "Expected a keras_vit.VisionTransformer or keras_vit.ResNetV2, whose inputs are known "
            f"to be images in [-1, 1]. Received: {type(model).__module__}.{type(model).__name__}. "
            "A model built around one can be exported by its own graph with model.export()."
        )
    config = model.get_config()
    policy = keras.dtype_policies.deserialize(config["dtype"]).name
    if policy == "float32" and not config.get("remat") and _all_trainable(model):
        return model
    config.update(dtype="float32", trainable=True)
    if "remat" in config:
        config["remat"] = False
    copy = type(model).from_config(config)
    for source, target in zip(model.weights, copy.weights, strict=True):
        target.assign(keras.ops.cast(source, "float32"))
        target.regularizer = getattr(source, "regularizer", None)
    return copy


def _all_trainable(model):
    return len(model.trainable_weights) == len(model.weights)


def num_classes(model):
    """Returns the number of logits, or None for a model without head."""
    return model.arguments["num_classes"]


def image_size(model):
    """Returns the (height, width) of the model's images, in pixels."""
    return tuple(model.input_shape[1:3])
