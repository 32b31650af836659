"""What is evaluated: any model as a function of images, with an identity for caches."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable

import keras
import numpy as np

import keras_vit

KERAS_RANGE = (-1.0, 1.0)
TF_HUB_RANGE = (0.0, 1.0)
# Side of the images whose pixels are compared with features.
PIXELS = 32


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model from a file or directory.

    Attributes:
        name: of the source, for tables.
        logits: images -> (batch, classes); what the model returns.
        features: images -> (batch, dimensions); what a linear classifier is put on.
        feature_name: which output that is.
        identity: a digest of architecture, weights and output; equal for equal functions.
        image_size: (height, width) that the model takes.
        image_range: smallest and largest value of the images that it takes.
    """

    name: str
    logits: Callable
    features: Callable
    feature_name: str
    identity: str
    image_size: tuple[int, int]
    image_range: tuple[float, float]

    @property
    def value_range(self) -> str:
        """The operation that scales images to what the model takes."""
        low, high = self.image_range
        return f"value_range({low:g},{high:g})"

    @property
    def resizing(self) -> str:
        """The preprocessing that resizes all of an image to what the model takes."""
        height, width = self.image_size
        return f"decode|resize([{height},{width}])|{self.value_range}"


def load_model(
    source: str | os.PathLike,
    *,
    name: str | None = None,
    image_size: int | None = None,
    num_classes: int | None = None,
    layer: str | None = None,
) -> LoadedModel:
    """Loads the directory of a TF-Hub module, or what `load_keras` does.

    Args:
        source: a directory that holds `saved_model.pb`, or as in `load_keras`.
        name, image_size, num_classes: as in `load_keras`.
        layer: the output used as features: an endpoint or layer of a Keras model, or an attribute
            of a module. None takes `endpoints["representation"]`, or `module.feature_vector`,
            where there is one, and what the model returns otherwise.

    Raises:
        FileNotFoundError: if `source` is none of these.
    """
    path = pathlib.Path(source)
    if name is None and (path / "saved_model.pb").exists():
        return _load_module(path, layer)
    model = load_keras(source, name=name, image_size=image_size, num_classes=num_classes)
    return describe(model, str(source), layer=layer)


def load_keras(
    source: str | os.PathLike,
    *,
    name: str | None = None,
    image_size: int | None = None,
    num_classes: int | None = None,
) -> keras.Model:
    """Loads the Keras model of a run directory, a `.keras` file or a checkpoint.

    Args:
        source: a directory that holds `model.keras`, such a file, or with `name` the file or
            published name of a checkpoint.
        name: of a checkpoint's model, such as "ViT-B/16".
        image_size: of a checkpoint's model, in pixels; 224 if None.
        num_classes: of a checkpoint's head, which must fit; None leaves out the head and
            pre-training's hidden layer.

    Raises:
        FileNotFoundError: if `source` is none of these.
    """
    if name is not None:
        model = keras_vit.create_model(name, num_classes=num_classes, image_size=image_size or 224)
        skip = ("head", "pre_logits") if num_classes is None else ()
        keras_vit.load_checkpoint(model, source, skip=skip)
        return model
    model = _load_keras(pathlib.Path(source))
    if model is None:
        raise FileNotFoundError(
            "Expected a run directory with model.keras, a .keras file or a directory with "
            f"saved_model.pb. Received: {source}. A run writes model.keras when it ends; for a "
            "checkpoint, name its model with --model=ViT-B/16."
        )
    return model


def untrained(source: str | os.PathLike, *, layer: str | None = None) -> LoadedModel:
    """Returns the Keras model of `source` with freshly initialised weights, for comparison."""
    model = _load_keras(pathlib.Path(source))
    if model is None:
        raise ValueError(
            f"Expected a run directory or a .keras file to initialise anew. Received: {source}"
        )
    keras.utils.set_random_seed(0)
    fresh = type(model).from_config(model.get_config())
    return describe(fresh, "without training", layer=layer)


def raw_pixels() -> LoadedModel:
    """Returns the model whose features are the pixels, for comparison."""

    def flatten(images):
        return np.asarray(images).reshape(len(images), -1)

    return LoadedModel(
        name="raw pixels",
        logits=flatten,
        features=flatten,
        feature_name="pixels",
        identity="pixels",
        image_size=(PIXELS, PIXELS),
        image_range=KERAS_RANGE,
    )


def describe(model, name: str, *, layer: str | None = None, identified: bool = True) -> LoadedModel:
    """Returns a Keras model as a `LoadedModel`.

    Args:
        model: a `keras.Model`.
        name: for tables.
        layer: as in `load_model`.
        identified: whether to compute the identity, which is that of the weights of this moment.
    """
    # What masked patch prediction trains is the encoder in it.
    model = getattr(model, "encoder", model)
    output, feature_name = _feature_output(model, layer)
    features = model if output is None else keras.Model(model.inputs, output)
    return LoadedModel(
        name=name,
        logits=inference_function(model),
        features=inference_function(features),
        feature_name=feature_name,
        identity=_identity(model, feature_name) if identified else "",
        image_size=_image_size(model.input_shape),
        image_range=KERAS_RANGE,
    )


def inference_function(model: Callable) -> Callable[..., np.ndarray]:
    """Returns `model` as a function from images to a NumPy array; Keras models are compiled."""
    function = model
    if isinstance(model, keras.Model):
        import tensorflow as tf

        function = tf.function(lambda images: model(images, training=False), reduce_retracing=True)

    def infer(images):
        return keras.ops.convert_to_numpy(function(images))

    return infer


def _load_keras(path):
    """Returns the model of a run directory or .keras file, or None if it is neither."""
    file = path / "model.keras" if path.is_dir() else path
    if file.suffix != ".keras" or not file.exists():
        return None
    return keras.saving.load_model(file, compile=False)


def _identity(model, feature_name):
    digest = hashlib.sha256(json.dumps(model.get_config(), sort_keys=True, default=str).encode())
    digest.update(f"{type(model).__name__} {feature_name}".encode())
    for weight in model.weights:
        digest.update(f"{weight.path} {weight.shape} {weight.dtype}".encode())
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(weight)).tobytes())
    return digest.hexdigest()


def _feature_output(model, layer):
    endpoints = getattr(model, "endpoints", {})
    if layer is None:
        if "representation" in endpoints:
            return endpoints["representation"], "representation"
        return None, "output"
    if layer in endpoints:
        return endpoints[layer], layer
    layers = {each.name: each for each in model.layers}
    if layer in layers:
        return layers[layer].output, layer
    raise ValueError(
        f"Expected an endpoint or layer of the model: {', '.join([*endpoints, *layers])}. "
        f"Received: {layer}"
    )


def _image_size(shape):
    height, width = tuple(shape)[1:3]
    return height or 224, width or 224


def _load_module(path, layer):
    import tensorflow as tf

    module = tf.saved_model.load(str(path))
    if not callable(module):
        raise ValueError(
            f"Expected a TF-Hub module that can be called on images. Received: {path}, a "
            "SavedModel with signatures only; `python -m export hub` writes callable ones."
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
    return LoadedModel(
        name=str(path),
        logits=inference_function(module),
        features=inference_function(features),
        feature_name=layer,
        identity=digest.hexdigest(),
        image_size=_module_image_size(module),
        image_range=TF_HUB_RANGE,
    )


def _module_image_size(module):
    traces = getattr(module.__call__, "concrete_functions", [])
    for trace in traces:
        for spec in trace.structured_input_signature[0]:
            if getattr(spec, "shape", None) is not None and len(spec.shape) == 4:
                return _image_size(spec.shape)
    return 224, 224
