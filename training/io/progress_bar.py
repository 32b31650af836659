"""A progress bar for a loop over items, whose number may be unknown."""

import logging
import operator
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

logger = logging.getLogger("keras_vit")
Item = TypeVar("Item")

LOG_EVERY_SECONDS = 30.0


def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    """Yields items, of a `tf.data.Dataset` too, and shows how far they are.

    A bar on a terminal, now and then a line in a log. `total` is their number, where `items` does
    not know it.
    """
    # A data set whose operations may drop elements gives no hint.
    total = total or operator.length_hint(items) or None
    if sys.stderr.isatty():
        from rich import console, progress

        shown_on = console.Console(stderr=True)
        yield from progress.track(items, description, total, console=shown_on, transient=True)
        return
    logged = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - logged > LOG_EVERY_SECONDS:
            logged = time.monotonic()
            logger.info("%s: %d%s", description, done, f" of {total}" if total else "")
        yield item
