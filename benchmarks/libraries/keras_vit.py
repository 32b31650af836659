"""This package."""

import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import keras_vit
from benchmarks.harness.case import Case
from benchmarks.libraries import keras_step


def _build(case, **arguments):
    keras.utils.set_random_seed(0)
    arguments |= case.arguments
    model = keras_vit.VisionTransformer(**arguments, dtype=keras_step.policy(case))
    count = keras_vit.costs(model)
    return model, {
        "parameters": keras_step.parameters(model),
        "macs": count.macs,
        "executed_macs": count.executed_macs,
    }


def prepare(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """The model."""
    model, facts = _build(case)
    return keras_step.step_of(model, case), facts


def remat(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """The model that recomputes its blocks' activations."""
    model, facts = _build(case, remat=True)
    return keras_step.step_of(model, case), facts


def flash_attention(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """The model with fused attention, where JAX has it."""
    model, facts = _build(case, flash_attention=True)
    return keras_step.step_of(model, case), facts


def undonated(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """The model whose updates leave the old weights in memory: JAX."""
    model, facts = _build(case)
    return keras_step.step_of(model, case, donate=False), facts


def inference_function(case: Case) -> tuple[Callable[[], Any], dict[str, int]]:
    """`keras_vit.inference_function` of the model: TensorFlow."""
    import tensorflow as tf

    model, facts = _build(case)
    for variable in model.variables:
        # As training leaves them: multiplying by ones and adding zeros is optimized away.
        variable.assign(variable + keras.random.normal(variable.shape, 0, 0.02, variable.dtype))
    infer = keras_vit.inference_function(model, batch_size=case.batch_size)
    images = tf.constant(case.images())
    return lambda: infer(images), facts


def to_tflite(case: Case, folder: pathlib.Path) -> None:
    """`export.to_tflite`, in int8 with dynamic quantization."""
    import export

    model, _ = _build(case)
    export.to_tflite(model, folder / "float32.tflite", quantization="none")
    export.to_tflite(model, folder / "int8.tflite", quantization="dynamic")


def to_calibrated_tflite(case: Case, folder: pathlib.Path) -> None:
    """`export.to_tflite`, its activations calibrated on noise, which times like any images."""
    import export

    noise = np.random.default_rng(0).uniform(0, 1, (4, *case.image_shape)).astype("float32")
    file = folder / "int8.tflite"
    export.to_tflite(_build(case)[0], file, quantization="int8", calibration=noise)


def to_onnx(case: Case, folder: pathlib.Path) -> None:
    """`export.to_onnx`."""
    import export

    export.to_onnx(_build(case)[0], folder / "float32.onnx")
