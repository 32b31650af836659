"""A real Chromium, and a server of the files that it opens."""

import contextlib
import functools
import http.server
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator
from typing import Any

from ..errors import RuntimeMissing, imported

_INSTALLED = ("chromium", "chromium-browser", "google-chrome")
# Headless, it offers no GPU by itself, and none in software.
_GPU = ("--enable-unsafe-webgpu", "--enable-unsafe-swiftshader")
_CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Yields a headless `playwright.sync_api.Browser`, with WebGPU and an invented camera.

    Raises `RuntimeMissing` if Playwright or Chromium is not installed.
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
