"""A bar on the terminal's error stream, so that tables can be piped away."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Sequence[Item], describe: Callable[[Item], str] = str) -> Iterator[Item]:
    """Yields the items, with a bar that shows how many are done and describes the current one."""
    from rich import console, progress

    with progress.Progress(
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),
        console=console.Console(stderr=True),
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("", total=len(items))
        for item in items:
            bar.update(task, description=describe(item))
            yield item
            bar.advance(task)
