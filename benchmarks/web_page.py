"""Loading and answers of pages of `keras-vit export web`, in a real Chromium.

Opens pages in a headless Chromium and prints Markdown: their size, what a first visit loads, how
long until it can answer, and the median time of one image.
"""

import argparse
import contextlib
import pathlib
from statistics import median

from benchmarks.harness.command_line import machine, show
from keras_vit.export.verification.browser import chromium, served
from keras_vit.training.command_line.options import CommandParser, list_of

BACKENDS = {"wasm": "CPU", "threads": "CPU, threads", "webgpu": "GPU"}
_READY = "html[data-ready]"
_TRANSFERRED = """performance.getEntriesByType("navigation")
  .concat(performance.getEntriesByType("resource"))
  .reduce((sum, entry) => sum + entry.transferSize, 0)"""
_TIMED = """async ([backend, rounds]) => {
  const runtime = await import("page/runtime");
  const { default: settings } = await import("page/assets");
  if ((await runtime.backends())[backend]) return null;
  await runtime.open(backend);
  const image = new Float32Array(3 * settings.image_size[0] * settings.image_size[1]).fill(0.5);
  const times = [];
  await runtime.run(image);
  const end = performance.now() + 5000;
  while (times.length < rounds && (!times.length || performance.now() < end))
    times.push((await runtime.run(image)).milliseconds);
  return times;
}"""


def add_options(parser: CommandParser) -> None:
    pages = list_of(str)
    parser.add_argument("--pages", type=pages, required=True, help="folders and .html files")
    parser.add_argument("--rounds", type=int, default=25, help="images that are timed")


def run(options: argparse.Namespace) -> None:
    print(machine(1), "\n", flush=True)
    with chromium() as browser:
        rows = [_page_row(browser, pathlib.Path(page), options.rounds) for page in options.pages]
        show(rows, f"Pages in Chromium {browser.version}")


def _page_row(browser, path, rounds):
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    with contextlib.ExitStack() as stack:
        address = path.resolve().as_uri() if path.is_file() else stack.enter_context(served(path))
        page = stack.enter_context(contextlib.closing(browser.new_context())).new_page()
        page.goto(address)
        page.wait_for_selector(_READY, state="attached")
        loaded = page.evaluate(_TRANSFERRED) or files[0].stat().st_size
        ready = page.locator("html").get_attribute("data-ready")
        if not path.is_file():
            # The service worker adds the headers that threads need, from the second visit on.
            page.evaluate("navigator.serviceWorker.ready.then(() => true)")
            page.reload()
            page.wait_for_selector(_READY, state="attached")
        times = {name: page.evaluate(_TIMED, [key, rounds]) for key, name in BACKENDS.items()}
    return {
        "page": path.name,
        "MB": f"{sum(file.stat().st_size for file in files) / 1e6:.1f}",
        "MB loaded": f"{loaded / 1e6:.1f}",
        "ms to ready": ready,
        **{f"ms, {name}": f"{median(each):.1f}" if each else "–" for name, each in times.items()},
    }
