"""A page of a tiny model, and a real Chromium to open it in."""

import numpy as np
import pytest
from PIL import Image

from keras_vit import export
from keras_vit.export.verification.browser import chromium, served

OPERATIONS = "decode|resize_small(36)|central_crop(32)|value_range(-1,1)"
NAMES = ("crow", "finch", "great tit", "a < b", "heron")


@pytest.fixture(scope="module")
def browser(with_browser):
    """A real Chromium."""
    with chromium() as opened:
        yield opened


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


@pytest.fixture(scope="package")
def address(site):
    with served(site) as address:
        yield address


@pytest.fixture
def open_page(browser):
    """Returns a function that opens an address and waits for the model."""
    contexts = []

    def open_page(address, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page, address):
    """The page of the site."""
    return open_page(address)


@pytest.fixture(scope="package")
def photo(tmp_path_factory):
    """A photo of soft shapes, as a PNG file."""
    noise = np.random.default_rng(0).integers(0, 256, (9, 7, 3)).astype(np.uint8)
    file = tmp_path_factory.mktemp("photos") / "photo.png"
    Image.fromarray(noise).resize((90, 130), Image.Resampling.BICUBIC).save(file)
    return file
