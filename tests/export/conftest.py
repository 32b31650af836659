import contextlib

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import keras_vit
from benchmarks.errors_in_runtimes import with_noise
from keras_vit import export
from keras_vit.export.errors import ExportError, RuntimeMissing
from keras_vit.export.verification.browser import chromium
from keras_vit.export.verification.runtimes import vulkan_environment
from keras_vit.export.web.to_web import litert_js
from tests.tiny_vit import tiny_vit

LABELS = ["cat", "dog", "tench", "château", "a b"]


def answer(model, images, endpoint=None):
    graph = keras.Model(model.input, model.endpoints[endpoint]) if endpoint else model
    return keras.ops.convert_to_numpy(graph(images * 2 - 1, training=False))


def run(file, images, signature="serving_default"):
    runner = Interpreter(str(file), num_threads=1).get_signature_runner(signature)
    size = runner.get_input_details()["image"]["shape"][0]
    batches = [images[i : i + size] for i in range(0, len(images), size)]
    (name,) = runner.get_output_details()
    return np.concatenate([runner(image=batch)[name] for batch in batches])


def verify(*args, **kwargs):
    """Returns the report of an artifact, without what it costs."""
    return export.verify(*args, **{"costs": False, **kwargs})


def pytest_collection_modifyitems(items):
    """Leaves what runs in a browser or on a GPU's delegate to test-runtimes and test-all."""
    for item in items:
        if {"with_browser", "gpu"} & {*item.fixturenames}:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def make_vit():
    def make(**overrides):
        keras.utils.set_random_seed(0)
        sizes = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "mlp_dim": 64}
        return with_noise(tiny_vit(**sizes | overrides))

    return make


@pytest.fixture(scope="session")
def images():
    return np.random.default_rng(1).uniform(0, 1, (8, 32, 32, 3)).astype("float32")


@pytest.fixture(scope="session")
def tiny(make_vit):
    return make_vit(num_layers=1)


@pytest.fixture(scope="session")
def scenes():
    """Images of a segmenter, which are not square."""
    return np.random.default_rng(1).uniform(0, 1, (4, 32, 48, 3)).astype("float32")


@pytest.fixture(scope="session")
def segmenter(make_vit):
    encoder = make_vit(num_layers=1, num_classes=None, image_size=(32, 48))
    model = with_noise(keras_vit.Segmenter(encoder, 5), seed=2)
    model.class_names = LABELS
    return model


@pytest.fixture(scope="session")
def segmenter_tflite(segmenter, tmp_path_factory):
    return export.to_tflite(segmenter, tmp_path_factory.mktemp("segmenter") / "m.tflite")


@pytest.fixture(scope="session")
def tiny_module(tiny, tmp_path_factory):
    return export.to_hub(tiny, tmp_path_factory.mktemp("tiny") / "module")


@pytest.fixture(scope="session")
def tiny_tflite(tiny, tmp_path_factory):
    return export.to_tflite(tiny, tmp_path_factory.mktemp("tiny") / "m.tflite")


@contextlib.contextmanager
def skipped_without(*errors):
    """Skips a test with the message of such an error, which says what to install."""
    try:
        yield
    except errors as error:
        pytest.skip(f"{error} (make test-runtimes)")


@pytest.fixture(scope="session")
def gpu():
    with skipped_without(RuntimeMissing):
        vulkan_environment()


@pytest.fixture(scope="session")
def with_litert_js():
    with skipped_without(ExportError, OSError):
        litert_js()


@pytest.fixture(scope="session")
def with_browser(with_litert_js):
    with skipped_without(ExportError), chromium():
        pass
