"""TF-Hub: a TF2 reusable SavedModel that others can call, fine-tune and serve."""

import os
import pathlib
from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_vit.analysis.class_maps import class_maps_graph
from keras_vit.models.image_model import ACTIVATIONS
from keras_vit.name_suggestions import require_one_of
from keras_vit.training.data.preprocessing.preprocess import Preprocess
from keras_vit.training.inference.interface import Interface, image_size, model_operations
from keras_vit.training.io.atomic import atomic_directory

from ..supported_models import BYTES_FROM, output_name, portable
from .tar_gz import write_saved_model

RESOLUTIONS = ("fixed", "any")


def to_hub(
    model: keras.Model,
    directory: str | os.PathLike,
    *,
    labels: Sequence[str] | None = None,
    resolution: str = "fixed",
    output: str | None = None,
    activation: str | None = None,
    class_maps: bool = False,
) -> pathlib.Path:
    """Writes a model as a TF2 reusable SavedModel, TF-Hub's format, and returns the directory.

    The module offers, with `images` (batch, height, width, 3) float32 RGB in [0, 1]:

    - `module(images, training=False)`: logits (batch, classes), of pixels (batch, height,
      width, classes), or the representation;
      `variables`, `trainable_variables` and `regularization_losses` for fine-tuning.
    - `module.feature_vector`, where the module has a head of images: the same interface,
      for the representation (batch, features).
    - `module.endpoints(images)`: dict of every intermediate result by the names of
      `model.endpoints`, and `block_00/attention` (batch, heads, tokens, tokens).
    - `serve` and `serve_train`: endpoints for Keras 3's `TFSMLayer`.
    - signatures `serving_default` (images; one in [0, 255] gives NaN), `serving_uint8` (uint8) and
      `serving_bytes` (encoded JPEG, PNG, GIF or BMP, prepared as `model.preprocessing`
      says or else resized), returning logits and probabilities, of numbers `values`, or the
      representation.
    - signature `class_maps`, with `class_maps=True`: (images, classes (batch,) int32) to `maps`
      (batch, rows, columns), `keras_vit.analysis.class_maps` by gradients of attention. A negative
      class is the most probable one; one that the model lacks gives NaN.
    - `labels`, where known: the asset labels.txt; `interface`: the asset interface.json, the
      size, range and preprocessing of images, and the activation.

    Every weight is stored once, in float32. The directory appears whole or not at
    all; one written by an earlier export is replaced.

    Args:
        model: of this package, one of `export.supported_models.MODELS`.
        directory: where to write.
        labels: class names in the order of the logits; None takes `model.class_names`.
        resolution: "fixed" (the model's image size) or "any" (position embeddings
            are interpolated in the graph, corners aligned; sines and cosines are computed).
        output: "logits" or "representation": what calling the module returns.
            None takes the logits where the model has a head.
        activation: "softmax" or "sigmoid", from logits to probabilities; None takes
            `model.activation`, or that of the head around our model.
        class_maps: whether to add that signature.

    Raises `ExportError` if the model is of another package; `ValueError` if an argument is out of
    its range, or the model cannot have what is asked for; `OSError` if the directory cannot be
    written.
    """
    require_one_of("resolution", resolution, RESOLUTIONS)
    model = portable(model)
    output, activation = output_name(model, output), activation or model.activation
    if class_maps and (output, resolution) != ("logits", "fixed"):
        raise ValueError(
            "Expected logits of images of one size with class_maps. Received: "
            f"output={output!r}, resolution={resolution!r}."
        )
    added = {"class_maps": _class_maps(model)} if class_maps else {}
    texts = Interface.of_export(model, output, labels, activation).texts()
    directory = pathlib.Path(directory)
    if patterns := {*"*?[\\"} - {os.sep} & {*os.path.abspath(directory)}:
        raise ValueError(
            f"Expected a path without {' and '.join(sorted(patterns))}: TensorFlow takes it for a "
            f"pattern when it loads a module. Received: {os.path.abspath(directory)}."
        )
    with atomic_directory(directory, marker="saved_model.pb") as written:
        root, signatures = _module(model, output, resolution, ACTIVATIONS[activation])
        for name, text in texts.items():
            file = written.parent / name
            file.write_text(text, encoding="utf-8")
            setattr(root, file.stem, tf.saved_model.Asset(str(file)))
        write_saved_model(root, written, signatures={**signatures, **added})
    return directory


def _module(model, output, resolution, activation):
    size = (None, None) if resolution == "any" else image_size(model)
    spec = tf.TensorSpec((None, *size, 3), tf.float32, name="images")
    main = _sub_model(model, output, resolution)
    root = _reusable(main, spec)
    if output == "logits" and "representation" in model.endpoints:
        root.feature_vector = _reusable(_sub_model(model, "representation", resolution), spec)
    root.endpoints = _reusable(endpoint_model(model, resolution), spec, modes=(False,))
    call = root.__call__
    traced = tf.function(input_signature=[spec], autograph=False)
    root.serve = traced(lambda images: call(images, training=False))
    root.serve_train = traced(lambda images: call(images, training=True))
    operations, rank = model_operations(model), len(main.output_shape)
    return root, _signatures(call, output, spec.shape, operations, activation, rank)


def _sub_model(model, output, resolution):
    if resolution == "any":
        if not hasattr(model, "any_resolution"):
            raise ValueError(
                'Expected resolution="fixed" for this model. Received: resolution="any" and a '
                f"{type(model).__name__}. Only a VisionTransformer takes images of any size."
            )
        return model.any_resolution(output)
    return model.up_to(output)


def endpoint_model(model: keras.Model, resolution: str) -> keras.Model:
    """Returns the model from images to a dict of all endpoints and attention weights.

    `model` is one that `portable` returned, `resolution` as in `to_hub`.
    """
    names = list(model.endpoints)
    if model.arguments.get("attention") == "global":
        names += model.attention_endpoints
    return model.any_resolution(names) if resolution == "any" else model.up_to(names)


def _reusable(model, spec, modes=(False, True)):
    """Returns an object with the interface of a reusable SavedModel around `model`.

    A `tf.train.Checkpoint`, not a `tf.Module`: the latter's `variables` is a property
    of the class and is not saved. The Keras model is not attached, which keeps its
    classes and a second copy of its variables out of the file.
    """
    module = tf.train.Checkpoint()
    module.variables = [v.value for v in model.variables]
    module.trainable_variables = [v.value for v in model.trainable_variables]
    module.regularization_losses = [
        _regularization_loss(v) for v in model.trainable_variables if v.regularizer is not None
    ]

    @tf.function(autograph=False)
    def infer(images, training):
        return model(images * 2.0 - 1.0, training=training)

    # Saving traces anew what it saves, which is only a call of these.
    traced = {training: infer.get_concrete_function(spec, training) for training in modes}

    @tf.function(autograph=False)
    def call(images, training=False):
        return traced[training](images)

    for training in modes:
        call.get_concrete_function(spec, training=training)
    module.__call__ = call
    return module


def _regularization_loss(variable):
    traced = tf.function(input_signature=[], autograph=False)
    return traced(lambda: variable.regularizer(variable.value))


def _signatures(call, output, shape, operations, activation, rank):
    prepare = Preprocess(operations, graph_only=True)

    def answer(images, mark=0.0):
        result = call(images, training=False) + mark
        if output == "logits":
            made = "values" if activation is ACTIVATIONS["linear"] else "probabilities"
            return {"logits": result, made: activation(result)}
        return {output: result}

    def traced(*shape, dtype, name):
        spec = tf.TensorSpec(shape, dtype, name=name)
        return tf.function(input_signature=[spec], autograph=False)

    @traced(*shape, dtype=tf.float32, name="images")
    def from_float(images):
        return answer(images, tf.reshape(_mark(images), (-1, *[1] * (rank - 1))))

    @traced(*shape, dtype=tf.uint8, name="images")
    def from_uint8(images):
        return answer(tf.image.convert_image_dtype(images, tf.float32))

    @tf.autograph.experimental.do_not_convert
    def decode(encoded):
        return (prepare(encoded, (0, 0)) + 1) / 2

    @traced(None, dtype=tf.string, name="image_bytes")
    def from_bytes(image_bytes):
        return answer(tf.map_fn(decode, image_bytes, fn_output_signature=tf.float32))

    return {"serving_default": from_float, "serving_uint8": from_uint8, "serving_bytes": from_bytes}


def _mark(images):
    """Returns NaN for an image in [0, 255] and 0 for others, (batch,).

    By arithmetic: TensorFlow.js and others do not take an assertion, which is control flow.
    """
    in_range = tf.reduce_max(images, axis=(1, 2, 3)) < BYTES_FROM
    return tf.where(in_range, 0.0, float("nan"))


def _class_maps(model):
    maps, shape = class_maps_graph(model)
    images = tf.TensorSpec((None, *image_size(model), 3), tf.float32, name="images")
    classes = tf.TensorSpec((None,), tf.int32, name="classes")

    @tf.function(input_signature=[images, classes], autograph=False)
    def of_classes(images, classes):
        count = tf.shape(images)[0]
        classes = tf.broadcast_to(classes, [count])
        mark = tf.where(classes < model.output_shape[-1], _mark(images), float("nan"))
        found = maps(images * 2.0 - 1.0, tf.zeros((count, *shape)), classes)
        return {"maps": found + mark[:, None, None]}

    return of_classes
