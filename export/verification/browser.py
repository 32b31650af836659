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

import numpy as np

from keras_vit.export.errors import ExportError, RuntimeMissing, damage_refused, imported
from keras_vit.export.verification.litert_interpreter import TFLiteInterpreter
from keras_vit.export.verification.runtimes import Delegation
from keras_vit.export.web.litert_js import litert_js
from keras_vit.export.web.page_files import write_page

_INSTALLED = ("chromium", "chromium-browser", "google-chrome")
# Headless, it offers no GPU by itself, and none in software.
_GPU = ("--enable-unsafe-webgpu", "--enable-unsafe-swiftshader")
_CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
_IMAGES = "images.bin"
# Milliseconds: the largest models have a gigabyte.
_LOADING = 300_000
_RUN = """async ([backend, precision, file, count]) => {
  const runtime = await import("page/runtime");
  const reason = (await runtime.backends())[backend];
  if (reason) return { reason };
  await runtime.open(backend, undefined, precision);
  const images = new Float32Array(await (await fetch(file)).arrayBuffer());
  const size = images.length / count;
  const outputs = [];
  for (let i = 0; i < count; i++)
    outputs.push(Array.from((await runtime.run(images.slice(i * size, (i + 1) * size))).values));
  const adapter = await navigator.gpu?.requestAdapter();
  return {
    outputs,
    complete: runtime.isFullyAccelerated(),
    adapter: adapter ? `${adapter.info.vendor} ${adapter.info.architecture}`.trim() : "",
  };
}"""


class BrowserOnCPU(TFLiteInterpreter):
    """The runtime of a .tflite file in WebAssembly, on one thread; see `Runtime`.

    Raises:
        RuntimeMissing: if Playwright or Chromium is not installed.
    """

    backend = "wasm"
    has_costs = False

    def run(self, images: np.ndarray) -> np.ndarray:
        outputs, self.delegation = self._in_chromium(images, "fp32")
        return outputs

    def _in_chromium(self, images, precision):
        """Returns (outputs, `Delegation`)."""
        settings = {"operations": [], "examples": [], "facts": {}, "activation": "softmax"}
        settings["image_size"] = list(self.image_size)
        with tempfile.TemporaryDirectory() as directory, chromium() as browser:
            site = pathlib.Path(directory) / "site"
            write_page(self._path, site, litert_js(), settings=settings, title="", summary="")
            (site / _IMAGES).write_bytes(np.ascontiguousarray(images, "<f4").tobytes())
            with served(site) as address:
                page = browser.new_page()
                page.goto(address)
                # The page opens the model too: in WebAssembly, which is there everywhere.
                page.wait_for_selector(
                    "html[data-ready], #error:not([hidden])", state="attached", timeout=_LOADING
                )
                if error := page.inner_text("#error"):
                    raise ExportError(f"{self._path} cannot be run by LiteRT.js: {error}")
                with damage_refused(f"{self._path} cannot be run by LiteRT.js"):
                    found = page.evaluate(_RUN, [self.backend, precision, _IMAGES, len(images)])
            if "reason" in found:
                raise RuntimeMissing(f"Expected a GPU in Chromium. {found['reason']}")
            device = f"Chromium {browser.version}, " + (
                f"WebGPU on {found['adapter']}" if self.backend == "webgpu" else "WebAssembly"
            )
        outputs = np.asarray(found["outputs"], "float32")
        outputs = outputs.reshape(len(images), *self._function.output_shape)
        return outputs, Delegation(device, found["complete"])


class BrowserOnGPU(BrowserOnCPU):
    """The runtime of a .tflite file in WebGPU; see `Runtime`.

    Raises:
        RuntimeMissing: if Playwright or Chromium is not installed, or Chromium has no GPU.
    """

    backend = "webgpu"

    def run(self, images: np.ndarray) -> np.ndarray:
        outputs, delegation = self._in_chromium(images, "fp32")
        half, _ = self._in_chromium(images, "fp16")
        self.delegation = dataclasses.replace(delegation, float16=half)
        return outputs


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
