"""The loop's state, which a checkpoint holds by name beside weights and optimizer."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engine.update import Report
from .best_evaluation import BestEvaluation


class LoopState:
    """The numbers that go on with a run: `fingerprint.as_numbers` of its data, and evaluations."""

    def __init__(self, data: np.ndarray, best: BestEvaluation):
        self.data, self.best = data, best
        # Sums over the updates since the last row of metrics; "updates" is their number.
        self.sums = dict.fromkeys(("updates", "loss", "gradient_norm"), 0.0)

    def arrays(self) -> dict[str, Any]:
        """Returns {name: value} of all numbers, for a checkpoint."""
        named = {f"best/{name}": value for name, value in self.best.numbers.items()}
        return {"data": self.data, **{f"sums/{k}": v for k, v in self.sums.items()}, **named}

    def restore(self, arrays: Mapping[str, np.ndarray], evaluations: bool) -> None:
        """Takes the sums of `arrays`, and the best evaluation if `evaluations` still compare."""
        self.sums = {name: float(arrays[f"sums/{name}"]) for name in self.sums}
        for name in self.best.numbers if evaluations else ():
            setattr(self.best, name, float(arrays[f"best/{name}"]))

    def add(self, count: int, report: Report) -> None:
        """Adds the report on `count` updates to the sums."""
        added = {"updates": 1, "loss": report.loss, "gradient_norm": report.gradient_norm}
        self.sums = {name: self.sums[name] + count * added[name] for name in added}

    def take_means(self) -> tuple[float, float]:
        """Returns the means of loss and gradient norm, and begins new sums."""
        count, loss, norm = self.sums.values()
        self.sums = dict.fromkeys(self.sums, 0.0)
        return loss / count, norm / count
