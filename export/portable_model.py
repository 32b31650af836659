"""The model that an export describes: float32, no rematerialization, TensorFlow variables."""

import keras

import keras_vit
from export.errors import ExportError
from export.model_around import model_around
from keras_vit.checkpoints.finite_weights import require_finite
from keras_vit.models.base import ImageModel
from keras_vit.models.quantized_layers import require_unquantized

CLASSIFIERS = (keras_vit.VisionTransformer, keras_vit.ResNetV2, keras_vit.AxialResNet)
MODELS = (*CLASSIFIERS, keras_vit.MaskedPatchPrediction)


def portable(model: keras.Model) -> keras.Model:
    """Returns `model`, or a copy of it in the form that is handed over.

    Whatever a model was trained in, its artifacts store and compute in float32:
    optimizers such as Adam do not move bfloat16 variables (1 - beta_2 rounds to
    zero), and phones and most CPUs have no bfloat16 arithmetic. Rematerialization
    is dropped, as its gradient does not survive in a SavedModel, and frozen weights
    are trainable again: what to train is for the artifact's next user to say.

    Of a `keras_vit.MaskedPatchPrediction` the encoder is handed over, without the
    head, the hidden layer before it and the attention pooling, which took no part
    in the training.

    Of a Sequential or functional model around one of `MODELS` it is all of it, as `model_around`
    has it.

    Args:
        model: one of `MODELS`, or a Sequential or functional model around one.

    Raises:
        ExportError: if it is another kind of model, or if Keras runs on another
            backend than TensorFlow.
        ValueError: if a weight is NaN or infinite, or the model was quantized.
    """
    if keras.backend.backend() != "tensorflow":
        raise ExportError(
            "Exporting needs Keras on TensorFlow. Received: backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow."
        )
    if not isinstance(model, MODELS):
        model = model_around(model, portable) or model
    if isinstance(model, ImageModel):
        require_finite(model)
        require_unquantized(model)
        if model.input_shape[-1] != 3:
            raise ExportError(
                "What is exported takes images in red, green and blue. Received: a model with "
                f"in_channels={model.input_shape[-1]}. Use model.export() for its own graph."
            )
    if isinstance(model, keras_vit.MaskedPatchPrediction):
        encoder = model.encoder
        pooling = encoder.arguments["classifier"]
        return _copy(
            encoder,
            num_classes=None,
            representation_size=None,
            classifier="gap" if pooling == "map" else pooling,
        )
    if type(model) is ImageModel:
        return model
    if not isinstance(model, CLASSIFIERS):
        raise ExportError(
            f"Expected one of {', '.join(kind.__name__ for kind in MODELS)} of keras_vit, whose "
            "inputs are known to be images in [-1, 1], or a model of Keras that calls one, such as "
            "keras.Sequential([…, model, Dense(5)]) or keras.Model(x, Dense(5)(model(x))). "
            f"Received: {type(model).__module__}.{type(model).__name__}. "
            "Another model can be exported by its own graph with model.export()."
        )
    config = model.get_config()
    policy = keras.dtype_policies.deserialize(config["dtype"]).name
    if policy == "float32" and not config.get("remat") and _all_trainable(model):
        return model
    return _copy(model)


def _copy(model, **changes):
    """Returns a trainable float32 copy, with the weights that both have."""
    config = {**model.get_arguments(), "dtype": "float32", "trainable": True, **changes}
    if "remat" in config:
        config["remat"] = False
    copy = type(model).from_config(config)
    copy.preprocessing = model.preprocessing
    if copy.arguments["num_classes"] == model.arguments["num_classes"]:
        copy.class_names = model.class_names
    sources = {weight.path: weight for weight in model.weights}
    for target in copy.weights:
        source = sources[target.path]
        target.assign(keras.ops.cast(source, "float32"))
        target.regularizer = getattr(source, "regularizer", None)
    return copy


def _all_trainable(model):
    return len(model.trainable_weights) == len(model.weights)


def num_classes(model: keras.Model) -> int | None:
    """Returns the number of logits, or None for a model without head."""
    return model.arguments["num_classes"]


def image_size(model: keras.Model) -> tuple[int, int]:
    """Returns the (height, width) of the model's images, in pixels."""
    return tuple(model.input_shape[1:3])
