"""TFLite (LiteRT): models for phones and other small computers."""

import gc
import logging
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert import convert_saved_model

from keras_vit.analysis.attention import rollout_endpoint
from keras_vit.models.argument_ranges import as_height_width
from keras_vit.models.image_model import ACTIVATIONS, ImageModel
from keras_vit.models.inner_layers import with_replaced_layers
from keras_vit.name_suggestions import require_one_of
from keras_vit.training.inference.interface import Interface, image_size
from keras_vit.training.io.atomic import atomic_file
from keras_vit.type_hints import ImageSize, Tensor

from ..errors import ExportError, damage_refused, imported
from ..hub.tar_gz import write_saved_model
from ..supported_models import check_range, output_name, portable, require_single_file
from . import flatbuffer
from .gpu_delegate_fixes import compute_constants, delegate_faults, equalize_ranks, for_delegates
from .mediapipe_metadata import add_metadata, append_texts
from .quantization import CALIBRATED, FOR_NPUS, QUANTIZATIONS, quantize

MAIN = "serving_default"
ROLLOUT = "attention_rollout"
CALIBRATION_IMAGES = 200
# Quantiles of pixels in [0, 1], a thousandth from either end: photos reach further than this.
NARROW = 0.5

logger = logging.getLogger("keras_vit")


def to_tflite(
    model: keras.Model,
    file: str | os.PathLike,
    *,
    quantization: str | Sequence[str] = "none",
    calibration: Iterable[Tensor] | None = None,
    labels: Sequence[str] | None = None,
    batch_sizes: Sequence[int] = (),
    image_sizes: Sequence[ImageSize] = (),
    feature_vector: bool = False,
    attention_rollout: bool = False,
    activation: str | None = None,
    probabilities: bool = False,
) -> pathlib.Path:
    """Writes a model as a TFLite file, and returns its path.

    The signature "serving_default" takes `image`, (1, height, width, 3) float32 RGB
    in [0, 1], and gives `logits`, (1, classes), of pixels (1, height, width, classes),
    or `representation` where the model has no head. Only TFLite's own operations occur,
    all of them run by XNNPACK. The rescaling to [-1, 1], the normalizations' scales and
    the attention's 1/√d are multiplied into the weights; the last block is computed for
    the class token alone.

    Args:
        model: of this package, one of `export.supported_models.MODELS`.
        file: the file to write; it appears whole or not at all.
        quantization: one of these; or several, of a model that is converted once, and `file` is a
            directory that gets a NAME.tflite of each:
            "none": float32.
            "float16": weights in float16, half the size.
            "dynamic": weights in int8, activations rounded as they come; a quarter
                of the size and about twice as fast.
            "int8": weights and the inputs of dense and convolutional layers in int8
                with fixed ranges, which `calibration` determines. The fastest.
            "int8-full": every operation in int8, for accelerators without floats.
                Slower on CPUs, and less accurate.
            "int16x8": weights in int8, activations in int16 (A16W8), for NPUs: close to
                float32. Sums, means, products and reciprocal roots stay in float, as one scale is
                too coarse for the tokens near zero among the others. Slow on CPUs.
            "int8-int16": the same with the inputs of dense and convolutional layers in int8.
        calibration: images like those of the application, RGB in [0, 1]: an array
            (n, height, width, 3) or an iterable of images or batches. The first
            200 are used.
        labels: class names in the order of the logits; None takes `model.class_names`.
        batch_sizes: each adds a signature "batch_N" on the same weights.
        image_sizes: each, an int or (height, width), adds a signature "size_HEIGHTxWIDTH" on the
            same weights, with position embeddings resized as `any_resolution` does.
        feature_vector: whether to add a signature "feature_vector" that gives
            the `representation`.
        attention_rollout: whether to add a signature "attention_rollout" that gives
            `rollout`, (1, rows, columns) in [0, 1]: how much the output draws from
            each patch, see `keras_vit.analysis.attention_rollout`.
        activation: "softmax" or "sigmoid", which the file says that its logits want; None takes
            the model's.
        probabilities: whether the file computes the activation itself and gives `probabilities`
            in place of `logits`, as thresholds of MediaPipe want. It then says that there is
            no activation to apply.

    Raises `ExportError` if the model is of another package, its weights exceed 2 GiB, or the images
    are not what it takes; `ValueError` if an argument is out of its range, or the model's
    attention, if it has any, is not followed; `OSError` if the file cannot be written.
    """
    kinds = [quantization] if isinstance(quantization, str) else list(quantization)
    for kind in kinds:
        _check_quantization(kind, calibration)
    model = portable(model)
    require_single_file(model)
    output = output_name(model)
    if probabilities and output != "logits":
        raise ValueError("Expected probabilities=False: the model has no head.")
    output = "probabilities" if probabilities else output
    interface = Interface.of_export(model, output, labels, activation)
    names = _names(batch_sizes, image_sizes, feature_vector, attention_rollout)
    found = signatures(model, names, interface.activation if probabilities else None)
    samples, content, path = None, None, pathlib.Path(file)
    if calibration is not None and not CALIBRATED.isdisjoint(kinds):
        samples = _calibration_samples(calibration, found)
    for kind in kinds:
        written = path if kind == quantization else path / f"{kind}.tflite"
        with atomic_file(written) as temporary:
            content = content or _float_content(model, found, interface)
            whole = content if kind == "none" else quantize(content, kind, samples)
            temporary.write_bytes(whole)
            append_texts(temporary, interface.texts())
    return path


def _check_quantization(quantization, calibration):
    require_one_of("quantization", quantization, QUANTIZATIONS)
    if quantization in CALIBRATED and calibration is None:
        raise ValueError(
            f'quantization="{quantization}" needs calibration=images, some 100 images like those '
            "of the application, RGB in [0, 1]. Received: None"
        )
    if quantization != "none":
        imported("litert_quantizer", "export")
    if quantization in FOR_NPUS:
        logger.warning(
            "%s is for accelerators that compute in integers. On CPUs it is slower than float32; "
            '"int8" is faster there.',
            quantization,
        )


def _float_content(model, found, interface):
    tree = flatbuffer.unpack(_convert(model, found))
    for definition in tree.signatureDefs:
        definition.signatureKey = [*found][int(definition.signatureKey[-3:])]
    compute_constants(tree)
    equalize_ranks(tree)
    _check_for_delegates(model, tree, found)
    flatbuffer.share_equal_weights(tree)
    add_metadata(tree, model.name, interface)
    return flatbuffer.pack(tree)


def _check_for_delegates(model, tree, found):
    """Raises ExportError unless GPU delegates compute a file of our layers alone, and right."""
    # The rollout of a MAP head is followed on the processor: its query, a constant, is on the left.
    graphs = [graph for graph, name in zip(tree.subgraphs, found, strict=True) if name != ROLLOUT]
    faults = delegate_faults(tree, graphs)
    # Around an ImageModel are layers of others.
    if faults and type(model) is ImageModel:
        logger.warning(
            "GPU delegates will not compute all of this file right: %s", "; ".join(faults)
        )
    elif faults:
        raise ExportError(
            "Expected a graph that every delegate computes right. Received one of which GPU "
            f"delegates would not, a defect of this exporter: {'; '.join(faults)}"
        )


def _convert(model, found):
    """Returns the bytes of a TFLite model, whose signatures' names end with their numbers."""
    # The converter sorts signatures by their names, and the main one must be first.
    names = [f"signature_{index:03d}" for index in range(len(found))]
    root = tf.train.Checkpoint()
    # The variables must be reachable from what is saved: the converter leaves out
    # the weights of others without an error.
    root.variables = [v.value for v in model.variables]
    functions = {name: _function(*each) for name, each in zip(names, found.values(), strict=True)}
    with tempfile.TemporaryDirectory() as directory:
        write_saved_model(root, directory, signatures=functions)
        del root, functions
        gc.collect()  # graphs refer to themselves
        # As the public `tf.lite.TFLiteConverter` does, but that one loads the SavedModel twice in
        # Python first, and has no option for weights behind the model instead of in it, which
        # spares the converter two copies of them. Where this has no effect, `unpack` finds them.
        unknown = f"{model.name} has a layer that the converter to TFLite does not know"
        with damage_refused(unknown, "Replace it."):
            return convert_saved_model(
                saved_model_dir=directory,
                saved_model_version=1,
                saved_model_tags=[tf.saved_model.SERVING],
                saved_model_exported_names=names,
                target_ops=[tf.lite.OpsSet.TFLITE_BUILTINS],
                use_buffer_offset=True,
            )


def _function(graph, shape, output):
    layers = for_delegates(graph)

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32, name="image")], autograph=False)
    def infer(image):
        return {output: layers(image * 2.0 - 1.0, training=False)}

    return infer


class Signature(NamedTuple):
    """One way into a file: a graph, the shape of its images with the batch, its output's name."""

    graph: keras.Model
    shape: tuple[int, int, int, int]
    output: str


def _names(batch_sizes, image_sizes, feature_vector, attention_rollout):
    """Returns the names of signatures, the main one first; `to_tflite` explains the arguments."""
    for batch in batch_sizes:
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(f"`batch_sizes` must be positive ints. Received: {batch!r}")
    names = [MAIN, *(f"batch_{batch:d}" for batch in batch_sizes)]
    names += ["size_{}x{}".format(*as_height_width(each)) for each in image_sizes]
    added = {"feature_vector": feature_vector, ROLLOUT: attention_rollout}
    return names + [name for name, wanted in added.items() if wanted]


def signatures(
    model: keras.Model, names: Iterable[str], activation: str | None
) -> dict[str, Signature]:
    """Returns what the signatures of a file of `model` compute, by those of `names` that it knows.

    `activation` is that of probabilities in place of logits, or None.
    """
    found = {}
    for name in names:
        graph, batch, size, output = model.up_to(), 1, image_size(model), output_name(model)
        if name == "feature_vector" and output == "logits":
            output = output_name(model, "representation")
            graph = model.up_to(output)
        elif name == ROLLOUT:
            graph, output = keras.Model(model.input, rollout_endpoint(model)), "rollout"
        elif of_batch := re.fullmatch(r"batch_(\d+)", name):
            batch = int(of_batch[1])
        elif of_size := re.fullmatch(r"size_(\d+)x(\d+)", name):
            size = int(of_size[1]), int(of_size[2])
            graph = _of_size(model, *size)
        elif name != MAIN:
            continue
        if activation and output == "logits":
            rows = ACTIVATIONS[activation](graph.output)
            # One name wherever it is exported, which `layer_errors` finds operations by.
            graph, output = keras.Model(graph.input, rows, name=graph.name), "probabilities"
        found[name] = Signature(graph, (batch, *size, 3), output)
    return found


def _of_size(model, height, width):
    """Returns the graph of a model for images of another size, position embeddings resized."""
    any_size = model.any_resolution() if hasattr(model, "any_resolution") else model
    try:
        return with_replaced_layers(any_size, {}, (None, height, width, 3))
    except ValueError as error:
        raise ValueError(
            f"Expected a model for images of any size. Received: {model.name}, which cannot take "
            f"{height} x {width} pixels: {error}"
        ) from error


def _calibration_samples(calibration, found):
    """Returns what each signature is calibrated with, by name."""
    images = _images(calibration, found[MAIN].shape[1:])
    samples = {}
    for name, (_, (batch, *size, _), _) in found.items():
        whole = len(images) // batch * batch
        if not whole:
            raise ValueError(
                f"Expected at least {batch} calibration images for the signature {name}. "
                f"Received: {len(images)}"
            )
        sized = images
        if images.shape[1:3] != tuple(size):
            resized = keras.ops.image.resize(images, size, data_format="channels_last")
            sized = np.clip(keras.ops.convert_to_numpy(resized), 0, 1)
        samples[name] = [{"image": sized[i : i + batch]} for i in range(0, whole, batch)]
    return samples


def _images(calibration, shape):
    """Returns the first `CALIBRATION_IMAGES`, (n, height, width, 3) float32 in [0, 1]."""
    images: list[np.ndarray] = []
    for each in calibration:
        array = np.asarray(each, dtype="float32")
        images.extend(array if array.ndim == 4 else [array])
        if len(images) >= CALIBRATION_IMAGES:
            break
    del images[CALIBRATION_IMAGES:]
    shapes = {image.shape for image in images}
    if shapes != {shape}:
        raise ValueError(
            f"Expected calibration images of shape {shape}. Received: "
            f"{sorted(shapes) or 'no images'}"
        )
    stacked = np.stack(images)
    check_range(stacked)
    if not np.ptp(stacked, axis=(1, 2)).any():
        raise ValueError(
            "Expected calibration images like those of the application. Received: "
            f"{len(stacked)} images of one color each."
        )
    low, high = np.quantile(stacked, (0.001, 0.999))
    if high - low < NARROW:
        logger.warning(
            "The calibration images have pixels in [%.2g, %.2g] nearly alone, so the ranges of the "
            "int8 file are narrow: other images will be clipped. Calibrate with images like those "
            "of the application.",
            *(low, high),
        )
    return stacked
