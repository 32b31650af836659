"""`python -m benchmarks web_page PAGE…`: how long pages of `export.to_web` load and answer."""

import argparse
import contextlib
import pathlib
import statistics
from collections.abc import Sequence

from benchmarks.harness import machine, options
from training.reporting.table import Table

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


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    result = options.parser(
        "web_page",
        "Opens pages of `python -m export web` in a headless Chromium and prints Markdown: their "
        "size, what\na first visit loads, how long until it can answer, and the median time of "
        "one image.",
        rounds=25,
    )
    result.add_argument("pages", nargs="+", type=pathlib.Path, help="folders and .html files")
    return result


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    from export.web.chromium import chromium

    chosen = parser().parse_args(argv)
    print(machine.describe(1))
    with chromium() as browser:
        rows = [_row(browser, path, chosen.rounds) for path in chosen.pages]
        title = f"Pages in Chromium {browser.version}"
    columns = ("page", "MB", "MB loaded", "ms to ready", *(f"ms, {x}" for x in BACKENDS.values()))
    print(f"\n{Table(columns, rows, title).markdown()}")
    return 0


def _row(browser, path, rounds):
    from export.web.chromium import served

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
        times = [page.evaluate(_TIMED, [backend, rounds]) for backend in BACKENDS]
    size = sum(file.stat().st_size for file in files)
    return (
        path.name,
        f"{size / 1e6:.1f}",
        f"{loaded / 1e6:.1f}",
        ready,
        *(f"{statistics.median(each):.1f}" if each else "–" for each in times),
    )
