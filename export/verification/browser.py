"""A TFLite file in LiteRT.js, in a real Chromium, by the code of the page that `to_web` writes."""

import contextlib
import dataclasses
import functools
import http.server
import os
import pathlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_vit.export.errors import ExportError, RuntimeMissing, damage_refused, imported
from keras_vit.export.verification.runtimes import Artifact, Delegation
from keras_vit.export.verification.tflite_files import open_interpreter
from keras_vit.export.web.litert_js import litert_js
from keras_vit.export.web.page_files import write_page

_INSTALLED = ("chromium", "chromium-browser", "google-chrome")
# Headless, it offers no GPU by itself, and none in software.
_GPU = ("--enable-unsafe-webgpu", "--enable-unsafe-swiftshader")
_CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
_IMAGES = "images.bin"
# Milliseconds: the largest models have a gigabyte.
_LOADING = 300_000
_RUN = """async ([backend, precisions, file, count]) => {
  const runtime = await import("page/runtime");
  const reason = (await runtime.backends())[backend];
  if (reason) return { reason };
  const images = new Float32Array(await (await fetch(file)).arrayBuffer());
  const size = images.length / count;
  const outputs = [];
  let complete = true;
  for (const precision of precisions) {
    await runtime.open(backend, undefined, precision);
    complete &&= runtime.isFullyAccelerated();
    const rows = [];
    for (let i = 0; i < count; i++)
      rows.push(Array.from((await runtime.run(images.slice(i * size, (i + 1) * size))).values));
    outputs.push(rows);
  }
  const adapter = await navigator.gpu?.requestAdapter();
  return {
    outputs,
    complete,
    adapter: adapter ? `${adapter.info.vendor} ${adapter.info.architecture}`.trim() : "",
  };
}"""


def open_browser(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens a .tflite file in WebAssembly, on one thread.

    Raises:
        RuntimeMissing: from `run`, if Playwright or Chromium is not installed.
    """
    return _in_browser(path, "wasm", ["fp32"])


def open_browser_gpu(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens a .tflite file in WebGPU, in float32 and in float16.

    Raises:
        RuntimeMissing: from `run`, if Playwright or Chromium is not installed, or has no GPU.
    """
    return _in_browser(path, "webgpu", ["fp32", "fp16"])


def _in_browser(path, backend, precisions):
    artifact = open_interpreter(path)
    settings = {"operations": [], "examples": [], "facts": {}, "activation": "softmax"}
    settings["image_size"] = list(artifact.image_size)

    def run(images):
        with tempfile.TemporaryDirectory() as directory, chromium() as browser:
            site = pathlib.Path(directory) / "site"
            write_page(path, site, litert_js(), settings=settings, title="", summary="")
            (site / _IMAGES).write_bytes(np.ascontiguousarray(images, "<f4").tobytes())
            with served(site) as address:
                page = browser.new_page()
                page.goto(address)
                # The page opens the model too: in WebAssembly, which is there everywhere.
                page.wait_for_selector(
                    "html[data-ready], #error:not([hidden])", state="attached", timeout=_LOADING
                )
                if error := page.inner_text("#error"):
                    raise ExportError(f"{path} cannot be run by LiteRT.js: {error}")
                with damage_refused(f"{path} cannot be run by LiteRT.js"):
                    found = page.evaluate(_RUN, [backend, precisions, _IMAGES, len(images)])
            if "reason" in found:
                raise RuntimeMissing(f"Expected a GPU in Chromium. {found['reason']}")
            where = f"WebGPU on {found['adapter']}" if backend == "webgpu" else "WebAssembly"
            device = f"Chromium {browser.version}, {where}"
        shape = (len(precisions), len(images), *artifact.output_shape)
        outputs, *half = np.array(found["outputs"], "float32").reshape(shape)
        return outputs, Delegation(device, found["complete"], float16=half[0] if half else None)

    return dataclasses.replace(artifact, run=run, has_costs=False)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Yields a headless `playwright.sync_api.Browser`, with WebGPU and an invented camera.

    Raises:
        RuntimeMissing: if Playwright or Chromium is not installed.
    """
    with imported("playwright.sync_api", "browser").sync_playwright() as tool:
        found = next(filter(None, map(shutil.which, _INSTALLED)), tool.chromium.executable_path)
        if not pathlib.Path(found).exists():
            raise RuntimeMissing(
                "Expected Chromium. Install it: python -m playwright install --with-deps chromium"
            )
        browser = tool.chromium.launch(executable_path=found, args=[*_GPU, *_CAMERA])
        try:
            yield browser
        finally:
            browser.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def served(directory: str | os.PathLike) -> Iterator[str]:
    """Yields the address of a server of the files of a directory, on this machine alone."""
    handler = functools.partial(_Quiet, directory=os.fspath(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
