"""TFLite files in LiteRT.js, in a real Chromium."""

import sys

import pytest

from keras_vit import export
from keras_vit.export.errors import ExportError, RuntimeMissing
from keras_vit.export.verification.browser import chromium
from keras_vit.export.web.litert_js import litert_js
from tests.export.conftest import verify


@pytest.fixture(scope="module", autouse=True)
def with_browser():
    """Skips what needs a browser where there is none, or no LiteRT.js."""
    try:
        litert_js()
        with chromium():
            pass
    except (ExportError, OSError) as error:
        pytest.skip(f"{error} (make test-runtimes)")


@pytest.mark.parametrize(
    ("runtime", "device", "limit"),
    [
        ("browser", "WebAssembly", 2e-5),
        pytest.param("browser-gpu", "WebGPU", 1e-3, marks=pytest.mark.long),
    ],
)
def test_the_browser_agrees(tiny, tiny_tflite, images, runtime, device, limit):
    try:
        report = verify(tiny, tiny_tflite, images, runtime=runtime)
    except RuntimeMissing as missing:
        pytest.skip(str(missing))
    assert report.ok and report.fully_delegated and report.max_error < limit
    assert device in report.device and "Chromium" in str(report)
    # In float16, too, where a GPU computes.
    assert (report.float16_error is None) == (runtime == "browser")
    assert runtime == "browser" or 1e-5 < report.float16_error < 0.02 * report.scale


@pytest.mark.long
def test_pages_are_verified_by_the_file_inside(tiny, images, tmp_path):
    page = export.to_web(tiny, tmp_path / "page.html", quantization="none", single_file=True)
    for runtime in ("interpreter", "browser"):
        assert verify(tiny, page, images, runtime=runtime).ok
    (tmp_path / "other.html").write_text("<!DOCTYPE html>")
    with pytest.raises(ExportError, match="without a model inside"):
        verify(tiny, tmp_path / "other.html", images)


def test_without_playwright_one_line_says_what_to_install(tiny, tiny_tflite, images, monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(RuntimeMissing, match=r"keras-vit-16x16\[browser\]"):
        verify(tiny, tiny_tflite, images, runtime="browser")
