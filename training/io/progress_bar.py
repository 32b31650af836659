"""Shows how far a loop or a training run is: a bar on a terminal, lines in a log."""

import logging
import math
import operator
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

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


class Progress:
    """Shows of training step, rate, images per second, time left and loss.

    `total` updates of `batch_size` images make a run, of which `start` are done.
    """

    def __init__(self, total: int, start: int, batch_size: int, shown: bool = True):
        self.total, self.step, self.batch_size, self.shown = total, start, batch_size, shown
        self._bar: Any = None
        self._started = False
        self._steps, self._seconds, self._rate = 0, 0.0, 0.0
        self._logged = -math.inf

    def __enter__(self):
        if self.shown and sys.stderr.isatty():
            from rich import console, progress

            bar, count = progress.BarColumn(), progress.MofNCompleteColumn()
            times = (progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
            self._bar = progress.Progress(
                *("{task.description}", bar, count, "{task.fields[note]}", *times),
                console=console.Console(stderr=True),
            )
            self._bar.add_task("training", total=self.total, completed=self.step, note="")
            self._bar.start()
        return self

    def __exit__(self, *exception):
        if self._bar:
            self._bar.stop()

    def advance(self, step: int, seconds: float, loss: float) -> None:
        """Records that training reached `step` after `seconds` more of computing."""
        # The first call also traces and compiles, so its time is not counted.
        if self._started:
            self._steps += step - self.step
            self._seconds += seconds
        self._started = True
        self.step = step
        if self._bar:
            rate = self._steps / self._seconds if self._seconds else self._rate
            note = f"{rate * self.batch_size:,.0f} images/s  loss {loss:.3g}"
            self._bar.update(self._bar.task_ids[0], completed=step, note=note)

    def images_per_second(self) -> float:
        """Returns the rate since the last call of this method."""
        if self._seconds:
            self._rate = self._steps / self._seconds
        self._steps, self._seconds = 0, 0.0
        return self._rate * self.batch_size

    def log(self, values: Mapping[str, float], evaluated: Mapping[str, str] | None = None) -> None:
        """Logs a row of metrics: all of it at level DEBUG, else now and then what people read.

        `evaluated` is {title: text} of an evaluation, which is always logged. The rest is not where
        there is a bar to show it.
        """
        if not self.shown:
            return
        is_full, now = logger.isEnabledFor(logging.DEBUG), time.monotonic()
        is_late = now - self._logged > LOG_EVERY_SECONDS or self.step == self.total
        if not (is_full or evaluated or (is_late and self._bar is None)):
            return
        self._logged = now
        # After the first call alone there is no rate.
        if is_full:
            names = [name for name in values if self._rate or name != "images_per_second"]
            shown = [f"{name} {_short(values[name])}" for name in names]
        else:
            shown = [f"loss {values['loss']:.3g}"]
            shown += [f"{self._rate * self.batch_size:,.0f} images/s"] if self._rate else []
            shown += [f"{title} {text}" for title, text in (evaluated or {}).items()]
        if self._rate:
            left = (self.total - self.step) / self._rate
            time_left = time.strftime("%H:%M:%S", time.gmtime(left))
            shown.append(f"left {time_left if left < 86400 else '> 1 day'}")
        logger.info("step %d/%d  %s", self.step, self.total, "  ".join(shown))


def _short(value):
    return str(value) if isinstance(value, int) else f"{value:.4g}"
