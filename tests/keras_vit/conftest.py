"""Golden cases, small models and gradients on every backend."""

import importlib.util
import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit

if keras.backend.backend() == "jax":
    import jax

    # These tests compile far longer than they compute.
    jax.config.update("jax_disable_most_optimizations", True)

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="session")
def few_steps():
    """Arguments of `compile` for so few steps that tracing a graph would take longer."""
    eagerly = keras.backend.backend() == "tensorflow"
    return {"run_eagerly": True} if eagerly else {"jit_compile": False}


@pytest.fixture(scope="session")
def golden():
    """The module that makes the weights and images of the golden cases."""
    spec = importlib.util.spec_from_file_location("golden", GOLDEN / "golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def cases():
    """The golden cases by name."""
    files = ("logits.json", "published.json")
    return {n: c for file in files for n, c in json.loads((GOLDEN / file).read_text()).items()}


@pytest.fixture(scope="session")
def load_case():
    """Returns a function that loads the file of a golden case as its reference saw images."""

    def load(model, case, path, **arguments):
        if not case["format"].endswith("npz"):
            half = [0.5, 0.5, 0.5]
            arguments = {"mean": case.get("mean", half), "std": case.get("std", half), **arguments}
        keras_vit.load_checkpoint(model, path, **arguments)

    return load


@pytest.fixture(scope="session")
def write_case(golden):
    """Returns a function that writes the checkpoint of a golden case into a folder."""

    def write(case, folder):
        arrays = golden.checkpoint(case)
        if case["format"].endswith("npz"):
            path = folder / "case.npz"
            np.savez(path, **arrays)
        else:
            from safetensors.numpy import save_file

            path = folder / "case.safetensors"
            save_file(arrays, path)
        return path

    return write


@pytest.fixture(scope="session")
def build_case():
    """Returns a function that builds the model of a golden case."""

    def build(case, **overrides):
        arguments = {"num_classes": case["num_classes"], "image_size": case["image_size"]}
        model = case["model"]
        if "resnet_v2" in model:
            return keras_vit.ResNetV2(**{**model["resnet_v2"], **arguments, **overrides})
        return keras_vit.VisionTransformer(**{**model, **arguments, **overrides})

    return build


def randomize(model, seed=0):
    """Gives every weight a value, so that no branch is silenced by a zero initialization."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        fan_in = np.prod(weight.shape[:-1]) if len(weight.shape) > 1 else 10
        value = rng.standard_normal(weight.shape) / np.sqrt(fan_in)
        weight.assign(value + (1 if weight.name == "gamma" else 0))
    return model


@pytest.fixture(scope="session")
def make_vit():
    """Returns a function that builds a small Vision Transformer with random weights."""

    def make(seed=0, **overrides):
        arguments = {
            "image_size": 16,
            "patch_size": 4,
            "hidden_size": 16,
            "mlp_dim": 32,
            "num_heads": 2,
            "num_layers": 2,
            "num_classes": 5,
            **overrides,
        }
        return randomize(keras_vit.VisionTransformer(**arguments), seed)

    return make


@pytest.fixture(scope="session")
def make_resnet():
    """Returns a function that builds a small BiT ResNet with random weights."""

    def make(seed=0, **overrides):
        arguments = {
            "num_layers": (1, 2),
            "width_factor": 0.5,
            "num_classes": 5,
            "image_size": 32,
            **overrides,
        }
        return randomize(keras_vit.ResNetV2(**arguments), seed)

    return make


@pytest.fixture(scope="session")
def random_images():
    """Returns a function of (batch, height, width) to images in [-1, 1]."""

    def images(batch=3, height=16, width=16, seed=1):
        rng = np.random.default_rng(seed)
        return rng.uniform(-1, 1, (batch, height, width, 3)).astype("float32")

    return images


@pytest.fixture(scope="session")
def to_numpy():
    return keras.ops.convert_to_numpy


@pytest.fixture(scope="session")
def forward():
    """Returns a function of (model, inputs) to outputs as NumPy arrays, without training."""

    def compute(model, inputs):
        if keras.backend.backend() == "jax":
            # One compilation of the whole instead of one of every operation.
            import jax

            values = [v.value for v in model.trainable_variables]
            state = [v.value for v in model.non_trainable_variables]
            outputs, _ = jax.jit(model.stateless_call)(values, state, inputs)
        else:
            outputs = model(inputs, training=False)
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

    return compute


@pytest.fixture(scope="session")
def gradients():
    """Returns a function of (model, images, training) to {weight's path: gradient}.

    The loss is the mean of the squared outputs.
    """

    def compute(model, images, training=False):
        variables = model.trainable_variables
        if keras.backend.backend() == "jax":
            import jax

            def loss(values):
                state = [v.value for v in model.non_trainable_variables]
                outputs, _ = model.stateless_call(values, state, images, training=training)
                return keras.ops.mean(outputs * outputs)

            results = jax.jit(jax.grad(loss))([v.value for v in variables])
        else:
            import tensorflow as tf

            with tf.GradientTape() as tape:
                outputs = model(images, training=training)
                loss = keras.ops.mean(outputs * outputs)
            results = tape.gradient(loss, variables)
        return {
            v.path: keras.ops.convert_to_numpy(g)
            for v, g in zip(variables, results, strict=True)
            if g is not None
        }

    return compute
