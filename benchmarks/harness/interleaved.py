"""The idea of all comparisons: ratios of what is measured in interleaved rounds, their medians."""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from keras_vit.training.io.progress_bar import track

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
    turns = [key for _ in range(rounds) for key in order.sample(list(calls), len(calls))]
    values: dict[Item, list[Value]] = {key: [] for key in calls}
    for key in track(turns, f"measuring, {rounds} rounds"):
        values[key].append(calls[key]())
    return values


def seconds(call: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ratio(values: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Returns the ratio of two lists of the same rounds.

    Pairs of the same round met the same machine, which medians of each alone did not.
    """
    paired = [a / b for a, b in zip(values, reference, strict=True)]
    if len(paired) == 1:
        return Ratio(*paired * 3)
    lower, middle, upper = statistics.quantiles(paired, n=4, method="inclusive")
    return Ratio(middle, lower, upper)
