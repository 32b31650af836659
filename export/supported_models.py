"""The models that can be exported, in the form that is exported, and the limits of their inputs."""

import keras
import numpy as np

from keras_vit.checkpoints.save import require_finite
from keras_vit.models import AxialResNet, ResNetV2, VisionTransformer
from keras_vit.models.image_model import ACTIVATIONS, ImageModel, activation_name, encoder_of
from keras_vit.models.inner_layers import inner_layers, require_unquantized
from keras_vit.models.masked_patch_prediction import MaskedPatchPrediction
from keras_vit.models.segmenter import Segmenter
from keras_vit.photos.prepare_photos import outside
from keras_vit.type_hints import Tensor

from .errors import ExportError

# The last one classifies pixels, the others images.
CLASSIFIERS = (VisionTransformer, ResNetV2, AxialResNet, Segmenter)
MODELS = (*CLASSIFIERS, MaskedPatchPrediction)
OUTPUTS = ("logits", "representation")
# The largest flatbuffer, which a TFLite file is, and protocol buffer, which an ONNX file is without
# the file of weights beside it.
FILE_LIMIT = 2**31
# A value as large as this is of pixels in [0, 255], not of rounding or augmentation in [0, 1].
BYTES_FROM = 2.0
RANGES = {"[0, 1]": (0.0, 1.0), "[0, 255]": (0.0, 255.0), "[-1, 1]": (-1.0, 1.0)}
_TOLERANCE = 1e-2


def portable(model: keras.Model, dtype: str = "float32") -> keras.Model:
    """Returns `model`, or a copy of it in the form that is handed over.

    Whatever a model was trained in, its artifacts store and compute in float32 by default:
    optimizers such as Adam do not move bfloat16 variables (1 - beta_2 rounds to
    zero), and phones and most CPUs have no bfloat16 arithmetic. Rematerialization
    is dropped, as its gradient does not survive in a SavedModel, and frozen weights
    are trainable again: what to train is for the artifact's next user to say.

    A `keras_vit.MaskedPatchPrediction` hands over its encoder, without the
    head, the hidden layer before it and the attention pooling, which took no part
    in the training.

    A Sequential or functional model around one of `MODELS`, such as
    `keras.Sequential([Rescaling(1 / 127.5, offset=-1), keras_vit…, Dense(5)])`, is handed over
    whole: operations of Keras that prepare images, the model, and a new head.

    Args:
        model: one of `MODELS`, or a Sequential or functional model around one.
        dtype: dtype policy of the copy; layers around one of `MODELS` get float32.

    Raises `ExportError` if it is another kind of model, if Keras runs on another backend than
    TensorFlow, or if the model around ours brings images of no range to [-1, 1], takes images of no
    fixed size, or does not end with a `Dense` layer; `ValueError` if a weight is NaN or infinite,
    or the model was quantized.
    """
    if keras.backend.backend() != "tensorflow":
        raise ExportError(
            "Exporting needs Keras on TensorFlow. Received: backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow."
        )
    if not isinstance(model, MODELS):
        model = _model_around(model, dtype) or model
    if isinstance(model, ImageModel):
        require_finite(model)
        require_unquantized(model)
        if model.input_shape[-1] != 3:
            raise ExportError(
                "What is exported takes images in red, green and blue. Received: a model with "
                f"in_channels={model.input_shape[-1]}. Use model.export() for its own graph."
            )
    if isinstance(model, MaskedPatchPrediction):
        encoder = model.encoder
        pooling = encoder.arguments["classifier"]
        copy = _copy(
            encoder,
            dtype,
            num_classes=None,
            representation_size=None,
            classifier="gap" if pooling == "map" else pooling,
        )
        copy.preprocessing = model.preprocessing or encoder.preprocessing
        return copy
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
    config = encoder_of(model).get_config()
    policy = keras.dtype_policies.deserialize(config["dtype"]).name
    all_trainable = len(model.trainable_weights) == len(model.weights)
    if policy == dtype and not config.get("remat") and all_trainable:
        return model
    return _copy(model, dtype)


def _copy(model, dtype, **changes):
    """Returns a trainable copy of another dtype policy, with the weights that both have."""
    arguments = {**model.arguments, **changes}
    if "remat" in arguments:
        arguments["remat"] = False
    if encoder_of(model) is model:
        arguments["dtype"] = dtype
    else:
        arguments["encoder"] = _copy(encoder_of(model), dtype)
    copy = type(model)(**arguments, name=model.name)
    own = {path: layer for path, layer, _ in inner_layers(copy)}
    for path, layer, _ in inner_layers(model):
        if type(layer) is type(own.get(path)) and _settings(layer) != _settings(own[path]):
            raise ExportError(
                f"Expected layers as {model.name} was built. Received: {path}, with a setting that "
                "was changed afterwards, which no copy has: build the model with it."
            )
    copy.preprocessing, copy.license = model.preprocessing, model.license
    copy.activation = model.activation
    if copy.arguments["num_classes"] == model.arguments["num_classes"]:
        copy.class_names, copy.thresholds = model.class_names, model.thresholds
    sources = {weight.path: weight for weight in model.weights}
    # With the product of LoRA's factors, which their variables are without.
    kernels = {
        f"{layer.path}/kernel": layer.kernel
        for _, layer, _ in inner_layers(model)
        if getattr(layer, "lora_enabled", False)
    }
    for target in copy.weights:
        source = sources[target.path]
        target.assign(keras.ops.cast(kernels.get(target.path, source), target.dtype))
        target.regularizer = getattr(source, "regularizer", None)
    return copy


def _settings(layer):
    """Returns the configuration of a layer, without what a copy may have otherwise."""
    others = ("dtype", "name", "trainable", "remat")
    config = layer.get_config().items()
    return {name: value for name, value in config if name not in others and "lora" not in name}


def output_name(model: keras.Model, output: str | None = None) -> str:
    """Returns the endpoint that is exported: `output`, or if it is None the first of `OUTPUTS`.

    A model without a head has no "logits", one of pixels no "representation".

    Raises `ValueError` if the model does not have it.
    """
    known = tuple(name for name in OUTPUTS if name in model.endpoints)
    if output not in (None, *known):
        lacking = {("representation",): "has no head", ("logits",): "classifies pixels"}
        received = f", of a model that {lacking[known]}" if known in lacking else ""
        raise ValueError(f"`output` must be one of {known}. Received: output={output!r}{received}")
    return output or known[0]


def check_range(images: Tensor) -> None:
    """Checks that pixels are numbers in [0, 1]: another range is the most common mistake.

    Raises `ExportError` otherwise; it names the range that they seem to be in.
    """
    wrong = outside(images, 0, 1)
    if wrong and np.max(images) >= BYTES_FROM:
        wrong += " They look like [0, 255]: divide by 255."
    elif wrong and np.min(images) < 0:
        wrong += " They look like [-1, 1]: take (images + 1) / 2."
    if wrong:
        raise ExportError(wrong)


def require_single_file(model: keras.Model) -> None:
    """Checks that a model's float32 weights fit into a TFLite file.

    Raises `ExportError` if they do not.
    """
    size = 4 * model.count_params()
    if size >= FILE_LIMIT:
        raise ExportError(
            f"Expected weights of less than {FILE_LIMIT / 2**30:.0f} GiB, which is what a TFLite "
            f"file holds. Received: {size / 2**30:.1f} GiB. Export the model with export.to_hub or "
            "export.to_onnx, or take a smaller one."
        )


def _model_around(model, dtype):
    """Returns a model of images in [-1, 1] on the layers of `model`, or None if ours is not inside.

    The range of its images is the one of `RANGES` that reaches our model as [-1, 1].
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
    require_unquantized(model)
    graph = keras.Model(model.inputs, model.outputs)
    last = graph.operations[-1]
    if last is not core and not isinstance(last, keras.layers.Dense):
        raise ExportError(
            "Expected a model that ends with a Dense layer, its head. Received: "
            f"{model.name}, which ends with {last.name}."
        )
    images = keras.Input(size, dtype="float32", name="images")
    prepared, endpoints = _handed_over(graph, core, last, images, dtype)
    low, high = _image_range(model.name, images, prepared)
    if (low, high) != (-1.0, 1.0):
        scale = keras.layers.Rescaling((high - low) / 2, (high + low) / 2, dtype="float32")
        whole = keras.Model(images, endpoints)
        images = keras.Input(size, dtype="float32", name="images")
        endpoints = whole(scale(images))
    units = endpoints["logits"].shape[-1] if "logits" in endpoints else None
    policy = keras.DTypePolicy("float32")
    around = ImageModel(images, endpoints, {"num_classes": units}, policy, model.name)
    own = getattr(model, "preprocessing", None)
    if own or core.input_shape[1:] == size:
        around.preprocessing = own or core.preprocessing
    around.license = core.license
    if last is core:
        around.class_names, around.activation = core.class_names, core.activation
        around.thresholds = core.thresholds
    if names := getattr(model, "class_names", None):
        around.class_names = names
    of_head = None if last is core else _activation_of(last)
    if name := getattr(model, "activation", None) or of_head:
        if of_head not in (None, name):
            raise ExportError(
                f"Expected the activation of {model.name} to be that of its head, {of_head}. "
                f"Received: {model.name}.activation={name!r}."
            )
        around.activation = name
    return around


def _handed_over(graph, core, last, images, dtype):
    """Returns what reaches our model, and {name: tensor} of the representation and the logits."""
    portable_core = portable(core, dtype)
    prepared, endpoints, others = [], {}, {}
    names = [name for name in ("representation", "logits") if name in portable_core.endpoints]
    outputs_of_core = portable_core.up_to(names)

    def call(operation, *args, **kwargs):
        if operation is core:
            prepared.append(args[0])
            if core is last:
                endpoints.update(outputs_of_core(*args, **kwargs))
                return endpoints[list(endpoints)[-1]]
            operation = portable_core
        else:
            if operation is last:
                endpoints["representation"] = args[0]
                operation = _without_activation(last)
            # A shared layer stays one.
            operation = others.setdefault(id(operation), _in_float32(operation))
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


def _in_float32(operation):
    """Returns a layer, or a copy of it that computes in float32."""
    if not isinstance(operation, keras.Layer):
        return operation
    inner = [layer for _, layer, _ in inner_layers(operation)]
    if all(each.compute_dtype == "float32" for each in (operation, *inner)):
        return operation
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        if isinstance(operation, keras.Model):
            return keras.models.clone_model(operation, clone_function=_in_float32)
        if inner or not type(operation).__module__.startswith("keras."):
            raise TypeError(f"{type(operation)} is not Keras's, or has layers inside")
        return _copy_of_layer(operation, dtype="float32")
    except (TypeError, ValueError, AttributeError) as error:
        raise ExportError(
            "Expected layers around keras_vit's model that compute in float32, or layers of Keras "
            f"without others inside. Received: {operation.name}, {operation.dtype_policy.name}. "
            "Build it with dtype='float32'."
        ) from error
    finally:
        keras.config.set_dtype_policy(policy)


def _copy_of_layer(layer, **changes):
    """Returns a built layer of the same weights and another configuration, without LoRA."""
    config = {key: value for key, value in layer.get_config().items() if "lora" not in key}
    copy = type(layer).from_config({**config, **changes})
    copy.build_from_config(layer.get_build_config())
    weights = layer.get_weights()
    if getattr(layer, "lora_enabled", False):
        # With the product of LoRA's factors.
        weights = [layer.kernel] if layer.bias is None else [layer.kernel, layer.bias]
    copy.set_weights(weights)
    return copy


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


def _activation_of(head):
    """Returns which of `ACTIVATIONS` a head computes, whatever its function is called, or None."""
    logits = keras.ops.linspace(-2.0, 2.0, max(head.units, 2))[None] * [[1.0], [20.0]]
    found = activation_between(logits, head.activation(logits))
    return None if found == "linear" else found


def activation_between(logits: Tensor, probabilities: Tensor) -> str | None:
    """Returns which of `ACTIVATIONS` makes (n, classes) probabilities of logits, or None."""
    for name, function in ACTIVATIONS.items():
        if np.allclose(function(logits), probabilities, atol=1e-6):
            return name
    return None


def _without_activation(head):
    """Returns a Dense layer that gives logits, with the weights of `head`."""
    if head.activation is keras.activations.linear:
        return head
    if _activation_of(head) is None:
        raise ExportError(
            "Expected a head without activation, with softmax or with sigmoid. Received: "
            f"{head.name} with {activation_name(head.activation)}."
        )
    return _copy_of_layer(head, activation="linear")
