"""A model that is evaluated and not trained: logits and features as functions of images."""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.analysis.attention import rollout_function
from keras_vit.analysis.figures import over_images
from keras_vit.errors import damage_named
from keras_vit.type_hints import Tensor

from ..data import Split
from ..data.preprocessing.preprocess import Preprocess
from ..data.tf_data_batches import eval_dataset
from . import exported_files, load_keras_model
from .load_keras_model import KERAS_RANGE, image_size_of, resizing

TF_HUB_RANGE = (0.0, 1.0)
# Side of the images whose pixels are compared with features.
PIXELS = 32
# Copies of a TFLite file's weights in memory, at most.
_AT_ONCE = 4


@dataclasses.dataclass(frozen=True)
class FrozenModel:
    """A model as functions of images, with an identity for caches.

    Attributes:
        name: of the source, for tables.
        logits: images -> (batch, classes); what the model returns.
        features: images -> (batch, dimensions); what a linear classifier is put on.
        feature_name: which output that is.
        identity: a digest of architecture, weights and output; equal for equal functions.
        image_size: (height, width) that the model takes.
        image_range: smallest and largest value of the images that it takes.
        preprocess: operations that make such images of files: those of the run's evaluation, or
            `load_keras_model.resizing`.
        class_names: of the logits, or None where they are not known.
        activation: "softmax" or "sigmoid", from logits to probabilities; "none" if `logits` gives
            probabilities; None without a head.
        activation_inside: "softmax" or "sigmoid", which gave the probabilities of a file, or None.
        rollout: images -> (batch, height, width) in [0, 1], where the model looks; None where
            that cannot be followed.
    """

    name: str
    logits: Callable[[Tensor], np.ndarray]
    features: Callable[[Tensor], np.ndarray]
    feature_name: str
    identity: str
    image_size: tuple[int, int]
    image_range: tuple[float, float]
    preprocess: str
    class_names: list[str] | None = None
    activation: str | None = "softmax"
    activation_inside: str | None = None
    rollout: Callable[[Tensor], np.ndarray] | None = None

    def require_head(self) -> None:
        """Raises `ValueError` if `logits` gives features."""
        if self.activation is None:
            raise ValueError(
                f"Expected a model with a head. Received: {self.name}, which gives features. The "
                "head of a checkpoint needs --num_classes."
            )

    def operations(self, split: Split, text: str) -> Preprocess:
        """Returns the operations of `text` on images of a split.

        Raises `ValueError` unless they make images in `image_range`.
        """
        return split.preprocess(text).require_range("the preprocessing", split, self.image_range)

    def batches(self, split: Split, text: str, batch_size: int) -> tf.data.Dataset:
        """Returns one pass over a split, see `eval_dataset`, by the operations of `text`.

        Photos that cannot be read are left out, and named.
        """
        operations = self.operations(split, text)
        return eval_dataset(split, operations, batch_size=batch_size, skip_counter=split.left_out)


def load_frozen(
    source: str | os.PathLike,
    *,
    layer: str | None = None,
    runtime: str | None = None,
    **checkpoint: Any,
) -> FrozenModel:
    """Loads a model from wherever `load_keras_model` finds one, or what was exported.

    Args:
        source: of a Keras model, the directory of a TF-Hub module, which holds
            `saved_model.pb`, or a .tflite or .onnx file.
        layer: the output used as features: an endpoint or layer of a Keras model, or an attribute
            of a module. None takes `endpoints["representation"]`, or `module.feature_vector`,
            where there is one, and what the model returns otherwise.
        runtime: of a .tflite file, one of `exported_files.RUNTIMES`; None takes the faster one.
        **checkpoint: `name`, `num_classes` and `image_size` of `load_keras_model.load_model`.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if it cannot be used, or has no such layer.
    """
    path = pathlib.Path(source)
    is_file, is_module = path.suffix in (".tflite", ".onnx"), (path / "saved_model.pb").exists()
    if is_file or is_module:
        load_keras_model.refuse_facts(source, **checkpoint)
    if layer is not None and is_file:
        raise ValueError(f"Expected a Keras model or module for layer={layer!r}. It is {path}.")
    if runtime is not None and path.suffix != ".tflite":
        raise ValueError(f"Expected a .tflite file for runtime={runtime!r}. Received: {source}")
    if is_file and path.exists():
        return _freeze_file(path, runtime)
    if is_module:
        return _freeze_module(path, layer)
    loaded = load_keras_model.load_model(source, **checkpoint)
    load_keras_model.require_ours(loaded)
    frozen = freeze(loaded.model, loaded.name, layer=layer)
    return dataclasses.replace(frozen, preprocess=loaded.preprocess, class_names=loaded.class_names)


def untrained(source: str | os.PathLike, *, layer: str | None = None) -> FrozenModel:
    """Returns the Keras model of `source` with freshly initialized weights, for comparison."""
    model = load_keras_model.load_model(source).model
    keras.utils.set_random_seed(0)
    fresh = type(model).from_config(model.get_config())
    return freeze(fresh, "without training", layer=layer)


def raw_pixels() -> FrozenModel:
    """Returns the model whose features are the pixels, for comparison."""

    def flatten(images: Tensor) -> np.ndarray:
        return np.asarray(images).reshape(len(images), -1)

    size = (PIXELS, PIXELS)
    return FrozenModel(
        "raw pixels", flatten, flatten, "pixels", "pixels", size, KERAS_RANGE, resizing(size)
    )


def freeze(
    model: keras.Model, name: str, *, layer: str | None = None, identified: bool = True
) -> FrozenModel:
    """Returns a Keras model, of this package or any that takes images in [-1, 1], as functions.

    `name` is for tables, `layer` as in `load_frozen`. If it is `identified`, its identity is that
    of the weights of this moment, else "".
    """
    # Masked patch prediction trains the encoder inside it.
    model = getattr(model, "encoder", model)
    features, feature_name = _features(model, layer)
    image_size = image_size_of(model.input_shape)
    return FrozenModel(
        name=name,
        logits=inference_function(model),
        features=inference_function(features),
        feature_name=feature_name,
        identity=_identity(model, feature_name) if identified else "",
        image_size=image_size,
        image_range=KERAS_RANGE,
        preprocess=resizing(image_size),
        activation=model.activation if getattr(model, "arguments", {}).get("num_classes") else None,
        rollout=rollout_of(model),
    )


def rollout_of(model: keras.Model) -> Callable[[Tensor], np.ndarray] | None:
    """Returns the function from images to their attention rollout, of the same size, if any."""
    if getattr(model, "arguments", {}).get("attention") != "global":
        return None
    # Prepared by the first call, as most models are never asked for it.
    prepared = functools.cache(lambda: rollout_function(model))
    stride = model.token_stride
    return lambda images: over_images(prepared()(images), stride, images.shape[1:3])


def inference_function(model: Callable) -> Callable[[Tensor], np.ndarray]:
    """Returns `model` as a function from images to a NumPy array; Keras models are compiled."""
    function = model
    if isinstance(model, keras.Model) and keras.backend.backend() == "jax":
        from ..engine.jax import compiled

        function = compiled(model)
    elif isinstance(model, keras.Model):
        import tensorflow as tf

        function = tf.function(
            lambda images: model(images, training=False), reduce_retracing=True, autograph=False
        )

    def infer(images: Tensor) -> np.ndarray:
        found = function(images)
        if isinstance(found, Mapping):
            raise ValueError(
                f"Expected a model with one output. Received: one that gives {sorted(found)}, of "
                "which few_shot takes one by --layer."
            )
        return keras.ops.convert_to_numpy(found)

    return infer


def _identity(model, feature_name):
    digest = hashlib.sha256(json.dumps(model.get_config(), sort_keys=True, default=str).encode())
    digest.update(f"{type(model).__name__} {feature_name}".encode())
    for weight in model.weights:
        digest.update(f"{weight.path} {weight.shape} {weight.dtype}".encode())
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(weight)).tobytes())
    return digest.hexdigest()


def _features(model, layer):
    endpoints = getattr(model, "endpoints", {})
    if layer is None:
        layer = "representation"
        if layer not in endpoints:
            return model, "output"
    if layer in endpoints:
        return model.up_to(layer), layer
    layers = {each.name: each for each in model.layers}
    if layer in layers:
        return keras.Model(model.inputs, layers[layer].output), layer
    raise ValueError(
        f"Expected an endpoint or layer of the model: {', '.join([*endpoints, *layers])}. "
        f"Received: {layer}"
    )


def _freeze_module(path, layer):
    import tensorflow as tf

    with damage_named(f"{path} cannot be loaded as a TF-Hub module"):
        module = tf.saved_model.load(str(path))
    if not callable(module):
        raise ValueError(
            f"Expected a TF-Hub module that can be called on images. Received: {path}, a "
            "SavedModel with signatures only; `keras-vit export hub` writes callable ones."
        )
    if layer is None:
        layer = "feature_vector" if hasattr(module, "feature_vector") else "output"
    if layer != "output" and not callable(getattr(module, layer, None)):
        raise ValueError(f"Expected a callable attribute of the module {path}. Received: {layer}")
    features = module if layer == "output" else getattr(module, layer)
    digest = hashlib.sha256(layer.encode())
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(str(file.relative_to(path)).encode())
        digest.update(file.read_bytes())
    infer, of_features = inference_function(module), inference_function(features)

    def logits(images: Tensor) -> np.ndarray:
        found = infer(images)
        if found.shape[:1] != (len(images),) or found.dtype.kind in "OSU":
            raise ValueError(
                f"Expected a module that gives numbers for each of {len(images)} images. Received: "
                f"{path}, which gives {found.dtype} of shape {found.shape}."
            )
        return found

    size = _module_image_size(module)
    return _exported(path, logits, of_features, layer, digest.hexdigest(), size)


def _freeze_file(path, runtime):
    function: exported_files.TFLiteFunction | exported_files.ONNXFunction
    advice = "the signature feature_vector, which `keras-vit export tflite --feature_vector` adds"
    if path.suffix == ".onnx":
        function = exported_files.ONNXFunction(path)
        advice = "a representation, which `keras-vit export onnx --module_output` names"
    else:
        function = exported_files.TFLiteFunction(path, runtime, at_once=_AT_ONCE)
    files = [path, *getattr(function, "weights", ())]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    def infer(images: Tensor) -> np.ndarray:
        return function(np.asarray(images, "float32"))

    def refuse(images):
        raise ValueError(
            f"Expected a file with {advice}. Received: {path}, which gives {function.output} alone."
        )

    features, output = infer, function.output
    if "feature_vector" in function.signatures:
        features = exported_files.signature_of(path, "feature_vector")
    elif output in ("logits", "probabilities"):
        features = refuse
    frozen = _exported(path, infer, features, "representation", digest, function.image_shape[:2])
    activation = {"representation": None, "probabilities": "none"}.get(output, frozen.activation)
    return dataclasses.replace(frozen, name=f"{path} in {function.runtime}", activation=activation)


def _exported(path, logits, features, feature_name, identity, image_size):
    """Returns the functions of an exported file with its class names and preprocessing."""
    interface = exported_files.interface_of(path)
    return FrozenModel(
        name=str(path),
        logits=logits,
        features=features,
        feature_name=feature_name,
        identity=identity,
        image_size=image_size,
        image_range=TF_HUB_RANGE,
        preprocess=interface.get("preprocessing") or resizing(image_size, TF_HUB_RANGE),
        class_names=exported_files.labels_of(path),
        activation=interface.get("activation", "softmax"),
        activation_inside=interface.get("activation_inside"),
    )


def _module_image_size(module):
    for trace in getattr(module.__call__, "concrete_functions", []):
        for spec in trace.structured_input_signature[0]:
            if getattr(spec, "shape", None) is not None and len(spec.shape) == 4:
                return image_size_of(spec.shape)
    return 224, 224
