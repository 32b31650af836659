"""Interleaved rounds: everything that is compared is measured once per round."""

import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


class Ratio(NamedTuple):
    """Median and quartiles of paired ratios."""

    median: float
    lower: float
    upper: float

    def quartiles(self) -> str:
        """Returns "LOWER to UPPER", as tables have it."""
        return f"{self.lower:.2f} to {self.upper:.2f}"


def measure(calls: Mapping[Item, Callable[[], Value]], rounds: int) -> dict[Item, list[Value]]:
    """Calls every function once per round and returns what each returned, round by round.

    Each round has an order of its own, so that none always follows the same other one.
    """
    order = random.Random(0)
    turns = [(i + 1, key) for i in range(rounds) for key in order.sample(list(calls), len(calls))]
    values: dict[Item, list[Value]] = {key: [] for key in calls}
    for _, key in track(turns, lambda turn: f"round {turn[0]} of {rounds}: {turn[1]}"):
        values[key].append(calls[key]())
    return values


def ratio(values: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Returns the ratio of two lists of the same rounds.

    Pairs of the same round met the same machine, which medians of each alone did not.
    """
    paired = [a / b for a, b in zip(values, reference, strict=True)]
    if len(paired) == 1:
        return Ratio(*paired * 3)
    lower, middle, upper = statistics.quantiles(paired, n=4, method="inclusive")
    return Ratio(middle, lower, upper)


def track(items: Sequence[Item], describe: Callable[[Item], str] = str) -> Iterator[Item]:
    """Yields the items, with a bar on a terminal's standard error that describes the current one.

    Standard output is for tables.
    """
    from rich import console, markup, progress

    errors = console.Console(stderr=True)
    with progress.Progress(console=errors, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=len(items))
        for item in bar.track(items, task_id=task):
            bar.update(task, description=markup.escape(describe(item)))
            yield item
