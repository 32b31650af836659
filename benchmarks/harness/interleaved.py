"""Interleaved rounds: everything that is compared is measured once per round."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from benchmarks.harness.progress import track

Key = TypeVar("Key")
Value = TypeVar("Value")


class Ratio(NamedTuple):
    """Median and quartiles of paired ratios."""

    median: float
    lower: float
    upper: float

    def quartiles(self) -> str:
        """Returns "LOWER to UPPER", as tables have it."""
        return f"{self.lower:.2f} to {self.upper:.2f}"


def measure(calls: Mapping[Key, Callable[[], Value]], rounds: int) -> dict[Key, list[Value]]:
    """Calls every function once per round and returns what each returned, round by round.

    Each round has an order of its own, so that none always follows the same other one.
    """
    order = random.Random(0)
    turns = [(i + 1, key) for i in range(rounds) for key in order.sample(list(calls), len(calls))]
    values: dict[Key, list[Value]] = {key: [] for key in calls}
    for _, key in track(turns, lambda turn: f"round {turn[0]} of {rounds}: {turn[1]}"):
        values[key].append(calls[key]())
    return values


def ratio(values: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Returns the ratio of two lists of the same rounds.

    Pairs of the same round met the same machine, which medians of each alone did not.
    """
    paired = [a / b for a, b in zip(values, reference, strict=True)]
    if len(paired) == 1:
        return Ratio(paired[0], paired[0], paired[0])
    lower, middle, upper = statistics.quantiles(paired, n=4, method="inclusive")
    return Ratio(middle, lower, upper)
