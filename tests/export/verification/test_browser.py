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


@pytest.fixture(scope="module")
def model(make_vit):
    return make_vit(num_layers=1)


def test_wasm_agrees(model, images, tmp_path):
    file = export.to_tflite(model, tmp_path / "m.tflite")
    report = verify(model, file, images, runtime="browser")
    assert report.ok and report.runtime == "browser" and report.fully_delegated
    assert report.max_error < 2e-5
    assert "WebAssembly" in report.device and "Chromium" in str(report)


@pytest.mark.long
def test_webgpu_agrees_in_float32_and_float16(model, images, tmp_path):
    file = export.to_tflite(model, tmp_path / "m.tflite")
    try:
        report = verify(model, file, images, runtime="browser-gpu")
    except ExportError as error:
        pytest.skip(str(error))
    assert report.ok and report.fully_delegated
    assert report.max_error < 1e-3
    assert "WebGPU" in report.device


@pytest.mark.long
def test_pages_are_verified_by_the_file_inside(model, images, tmp_path):
    page = export.to_web(model, tmp_path / "page.html", quantization="none", single_file=True)
    assert verify(model, page, images).ok
    assert verify(model, page, images, runtime="browser").ok
    (tmp_path / "other.html").write_text("<!DOCTYPE html>")
    with pytest.raises(ExportError, match="without a model inside"):
        verify(model, tmp_path / "other.html", images)


def test_without_playwright_one_line_says_what_to_install(model, images, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    file = export.to_tflite(model, tmp_path / "m.tflite")
    with pytest.raises(RuntimeMissing, match=r"keras-vit-16x16\[browser\]"):
        verify(model, file, images, runtime="browser")
