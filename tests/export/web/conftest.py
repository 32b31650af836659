import numpy as np
import pytest

from keras_vit import export

OPERATIONS = "decode|resize_small(36)|central_crop(32)|value_range(-1,1)"
NAMES = ("crow", "finch", "great tit", "a < b", "heron")


@pytest.fixture(scope="package")
def model(make_vit):
    model = make_vit()
    model.preprocessing = OPERATIONS
    model.class_names = NAMES
    return model


@pytest.fixture(scope="package")
def example():
    return np.random.default_rng(3).integers(0, 256, (40, 40, 3)).astype(np.uint8)


@pytest.fixture(scope="package")
def site(model, example, with_litert_js, tmp_path_factory):
    path = tmp_path_factory.mktemp("web") / "site"
    return export.to_web(model, path, quantization="none", title="Birds & co", examples=[example])
