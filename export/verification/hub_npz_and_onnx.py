"""A SavedModel, called as `tensorflow_hub` calls it; a checkpoint in Keras; ONNX Runtime."""

import pathlib

import keras
import numpy as np

import keras_vit
from keras_vit.export.errors import ExportError, damage_refused, imported
from keras_vit.export.supported_models import output_name
from keras_vit.export.verification.runtimes import Artifact, Delegation, in_batches


def open_hub(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens the directory of a TF-Hub module."""
    tensorflow_hub = imported("tensorflow_hub", "hub")
    with damage_refused(f"{path} cannot be loaded as a SavedModel"):
        module = tensorflow_hub.load(str(path))
        signature = module.signatures["serving_default"]
        output = "logits" if "logits" in signature.structured_outputs else "representation"
    if not callable(module):
        raise ExportError(
            f"Expected a TF-Hub module that can be called. Received: {path}, a SavedModel "
            "with signatures only. `keras-vit export hub` writes callable ones."
        )
    (images,) = signature.structured_input_signature[1].values()
    sides = tuple(images.shape)[1:3]
    return Artifact(
        kind="hub",
        output=output,
        run=lambda images: (in_batches(module, images), None),
        image_size=sides if all(sides) else None,
        has_costs=True,
    )


def open_keras(path: pathlib.Path, model: keras.Model) -> Artifact:
    """Opens a checkpoint, of the architecture of `model`."""
    copy = type(model).from_config(model.get_config())
    for weight in copy.weights:
        weight.assign(np.full(weight.shape, np.nan, "float32"))
    keras_vit.load_checkpoint(copy, path)

    def run(images):
        return in_batches(lambda batch: copy(batch * 2 - 1, training=False), images), None

    return Artifact("npz", output_name(model), run)


def open_onnx(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens an .onnx file in ONNX Runtime, on the processor."""
    onnxruntime, onnx = imported("onnxruntime", "onnx"), imported("onnx", "onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised as well
    with damage_refused(f"{path} cannot be loaded by ONNX Runtime"):
        session = onnxruntime.InferenceSession(
            path.read_bytes(), options, providers=["CPUExecutionProvider"]
        )
        inputs, outputs = session.get_inputs(), session.get_outputs()
        given, made = ([each.name for each in ends] for ends in (inputs, outputs))
        if given != ["image"] or len(made) != 1:
            raise ExportError(
                f"Expected a file from `image` to one output. Received: {path}, from {given} to "
                f"{made}. Write it with `keras-vit export onnx`."
            )
        _, height, width, _ = inputs[0].shape
        types = {each.data_type for each in onnx.load(path).graph.initializer}

    def run(images):
        with damage_refused(f"{path} cannot be run by ONNX Runtime"):
            result = in_batches(lambda batch: session.run(None, {"image": batch})[0], images)
        return result, Delegation(", ".join(session.get_providers()), True)

    kind = "float16" if onnx.TensorProto.FLOAT16 in types else "onnx"
    return Artifact(kind, made[0], run, (height, width))
