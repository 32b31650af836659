"""A result as the paper prints it: mean ± sample standard deviation over runs."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class MeanDeviation(NamedTuple):
    """The mean of some runs and how far they scatter; `str` shows two decimals.

    Attributes:
        mean: of the values, in their unit.
        deviation: sample standard deviation (divided by n - 1); None for less than two runs.
    """

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> "MeanDeviation":
        """Returns the mean and deviation of at least one value."""
        values = list(values)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), deviation)

    @property
    def percent(self) -> "MeanDeviation":
        """The same of values 100 times as large."""
        return MeanDeviation(100 * self.mean, self.deviation and 100 * self.deviation)

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread}"
